# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The run that an island takes part in."""

import ctypes
import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import _library

# The prefix of the name for a run's frozen tensors (adapters.py).
FROZEN = "frozen:sha256:"


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the run: its name, its extents, and its fragment's number."""

    name: str
    shape: Tuple[int, ...]
    fragment: int


@dataclass(frozen=True)
class Run:
    """A run, as it was when the island joined."""

    id: str
    name: str
    # This island's name.
    island: str
    # The island's part of the data, 0 .. shards - 1.
    shard: int
    shards: int
    # The order in which the island reads its part. Islands that share a part
    # have different ones.
    data_order: int
    # The inner steps that the run has completed, and its total.
    step: int
    total_steps: int
    # The sequences in an inner step of the whole island, and the tokens in a
    # sequence.
    batch_size: int
    sequence_length: int
    # The values in all tensors.
    parameters: int
    fragments: int
    tensors: Tuple[TensorInfo, ...] = field(repr=False)
    # RunConfig of proto/run_config.proto.
    configuration: Dict[str, Any] = field(repr=False)

    def excludes(self, name: str) -> bool:
        """Returns whether the run excludes a tensor of this name."""
        return matches_any(self._excluded, name)

    @property
    def frozen(self) -> Optional[str]:
        """The digest of the islands' frozen tensors; None if they may
        differ."""
        return next((pattern for pattern in self._excluded
                     if re.fullmatch(FROZEN + "[0-9a-f]{64}", pattern)), None)

    @property
    def _excluded(self) -> List[str]:
        return list(self.configuration.get("tensors", {}).get("exclude", []))


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Returns whether one of the patterns matches the whole name."""
    return any(_matches(pattern, name) for pattern in patterns)


def _matches(pattern: str, name: str) -> bool:
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, name, re.DOTALL) is not None


def read_run(handle: ctypes.c_void_p, run: _library.Run) -> Run:
    """Returns the run that causeway_await_run has filled in."""
    library = _library.library()
    tensors: List[TensorInfo] = []
    tensor = _library.Tensor()
    order = ctypes.c_uint32()
    _library.check(
        library.causeway_data_order(handle, ctypes.byref(order)))
    for index in range(run.tensors):
        _library.check(
            library.causeway_tensor_at(handle, index, ctypes.byref(tensor)))
        tensors.append(
            TensorInfo(tensor.name.decode(),
                       tuple(tensor.shape[:tensor.dimensions]),
                       tensor.fragment))
    return Run(id=run.run_id.decode(),
               name=run.name.decode(),
               island=run.island.decode(),
               shard=run.shard,
               shards=run.shards,
               data_order=order.value,
               step=run.step,
               total_steps=run.total_steps,
               batch_size=run.batch_size,
               sequence_length=run.sequence_length,
               parameters=run.parameters,
               fragments=run.fragments,
               tensors=tuple(tensors),
               configuration=json.loads(run.configuration or b"{}"))
