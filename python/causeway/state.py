# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Packs a saved folder into one value, for checkpoints."""

import ctypes
import os
from typing import Any

from .creation import raw_bytes
from .errors import InvalidArgument

# The file of the folder: a header's size, 8 bytes, then the header and values.
_FILE = "island.safetensors"


def pack(folder: str) -> Any:
    """Returns the state in a folder as a storage of PyTorch.

    torch.save writes it as it is, at any size. For torch.distributed.checkpoint
    it is not a tensor, whose size would have to be known before loading.
    """
    import torch
    path = os.path.join(folder, _FILE)
    storage: Any = torch.UntypedStorage(  # type: ignore[no-untyped-call]
        os.path.getsize(path))
    content: Any = (ctypes.c_ubyte * storage.nbytes()).from_address(
        storage.data_ptr())
    with open(path, "rb") as file:
        file.readinto(content)
    return storage


def unpack(packed: Any, folder: str) -> None:
    """Writes the state to a folder. Raises InvalidArgument."""
    import torch
    # torch.load wraps it, and the wrapper warns about its own use.
    packed = getattr(packed, "_untyped_storage", packed)
    values: Any = torch.tensor((), dtype=torch.uint8, device="cpu")
    try:
        values = values.set_(packed.cpu())
    except (AttributeError, TypeError, RuntimeError) as error:
        raise InvalidArgument(
            f"the island's state is damaged: {error}") from error
    # A ctypes.string_at would take its size as a C int.
    content = memoryview(raw_bytes(values))
    header = int.from_bytes(content[:8], "little")
    if len(content) < 8 or 8 + header > len(content):
        raise InvalidArgument("the island's state is damaged")
    with open(os.path.join(folder, _FILE), "wb") as file:
        file.write(content)
