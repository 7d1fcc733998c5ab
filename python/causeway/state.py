# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A saved folder as one tensor, for checkpoints that hold tensors."""

import ctypes
import io
import os
import tarfile


def pack(folder: str):
    """Returns the files of a folder as a torch.uint8 tensor."""
    import torch
    if not os.listdir(folder):
        return torch.empty(0, dtype=torch.uint8)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(os.path.join(folder, name), name)
    return torch.frombuffer(bytearray(stream.getbuffer()), dtype=torch.uint8)


def unpack(packed, folder: str) -> bool:
    """Writes the files to a folder. Returns whether there are any."""
    import torch
    if packed.numel() == 0:
        return False
    packed = packed.to("cpu", torch.uint8).contiguous()
    content = ctypes.string_at(packed.data_ptr(), packed.numel())
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive.getmembers():
            if not member.isfile() or os.path.basename(
                    member.name) != member.name:
                raise ValueError(f"a state has no file {member.name}")
            with open(os.path.join(folder, member.name), "wb") as file:
                file.write(archive.extractfile(member).read())
    return True
