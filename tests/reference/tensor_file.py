# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files, by the documentation of the format.

It shares no code with common/tensors/safetensors.cc, and Debian has no package
of the format's own library.
"""

import json
import pathlib
import struct
from typing import Dict, Tuple

import torch

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
          "BF16": torch.bfloat16}

Tensors = Dict[str, torch.Tensor]


def write_tensors(path: pathlib.Path, tensors: Tensors,
                  metadata: Dict[str, str]) -> None:
    """Writes the tensors in their order, without gaps."""
    names = {dtype: name for name, dtype in _TYPES.items()}
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        values = tensor.flatten().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype],
                        "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    # The data begin at a multiple of 8, for readers that map the file.
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path: pathlib.Path) -> Tuple[Tensors, Dict[str, str]]:
    """Returns the tensors by name, in the header's order, and the metadata."""
    content = path.read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, last = (begin + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(bytearray(content[first:last]),
                                  dtype=_TYPES[entry["dtype"]])
        tensors[name] = values.view(entry["shape"])
    return tensors, metadata
