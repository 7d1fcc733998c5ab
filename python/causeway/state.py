# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Packs a saved folder into one value, for checkpoints."""

import ctypes
import io
import os
import tarfile
from typing import Any

from .errors import InvalidArgument


def _values_of(storage: Any) -> Any:
    import torch
    return torch.tensor((), dtype=torch.uint8, device="cpu").set_(storage)


def pack(folder: str) -> Any:
    """Returns the files of a folder as a storage of PyTorch.

    torch.save writes it as it is, at any size. For torch.distributed.checkpoint
    it is not a tensor, whose size would have to be known before loading.
    """
    import torch
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(os.path.join(folder, name), name)
    content = torch.frombuffer(stream.getbuffer(), dtype=torch.uint8)
    storage: Any = torch.UntypedStorage(  # type: ignore[no-untyped-call]
        content.numel())
    _values_of(storage).copy_(content)
    return storage


def unpack(packed: Any, folder: str) -> None:
    """Writes the files to a folder. Raises InvalidArgument."""
    # torch.load wraps it, and the wrapper warns about its own use.
    values = _values_of(getattr(packed, "_untyped_storage", packed).cpu())
    content = ctypes.string_at(values.data_ptr(), values.numel())
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive.getmembers():
                _extract(archive, member, folder)
    except tarfile.TarError as error:
        raise InvalidArgument(
            f"the island's state is damaged: {error}") from error


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo,
             folder: str) -> None:
    if not member.isfile() or os.path.basename(member.name) != member.name:
        raise InvalidArgument(f"an island's state has no file {member.name}")
    stored = archive.extractfile(member)
    with open(os.path.join(folder, member.name), "wb") as file:
        file.write(stored.read() if stored else b"")
