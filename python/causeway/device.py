# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""What an island does about a device that is behind the host."""

import collections
from typing import Any, Deque, List, Optional, Tuple

import torch

from .native import NativeIsland

# PyTorch declares types for only some of it.
cuda: Any = torch.cuda

# The steps that the device may be behind before the host waits for it.
_MOST_LOSSES = 32


class TrainingStream:
    """The CUDA stream on which the training loop writes the parameters.

    device: that of the parameters.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._stream = cuda.current_stream(device)

    @staticmethod
    def is_captured() -> bool:
        """Returns whether a graph is made of the calls instead."""
        return bool(cuda.is_current_stream_capturing())

    def follow(self, native: NativeIsland) -> None:
        """Lets the library wait for the stream that is current now."""
        stream = cuda.current_stream(self.device)
        if stream != self._stream:
            # The last step may still be running there.
            stream.wait_stream(self._stream)
            native.set_stream(stream.cuda_stream)
            self._stream = stream


class _Slot:
    """A loss that the device has copied to host memory by the time of an event.

    step: that of the loss.
    """

    def __init__(self, value: torch.Tensor):
        self._value = value
        self._event = cuda.Event()
        self.step = 0

    def fill(self, step: int, loss: torch.Tensor) -> None:
        self.step = step
        self._value.copy_(loss.reshape(1), non_blocking=True)
        self._event.record(cuda.current_stream(loss.device))

    def is_ready(self) -> bool:
        return bool(self._event.query())

    def wait(self) -> None:
        self._event.synchronize()

    def value(self) -> float:
        return float(self._value)


def _make_slots() -> List[_Slot]:
    # Copies wait for nothing if the memory is pinned.
    values = torch.empty(_MOST_LOSSES, 1, pin_memory=True)
    return [_Slot(value) for value in values.unbind()]


class Losses:
    """Reads losses, those on a device without waiting for it: later, once they
    are computed."""

    def __init__(self, stream: Optional[TrainingStream]):
        self._device = None if stream is None else stream.device
        self._spare = [] if stream is None else _make_slots()
        self._filled: Deque[_Slot] = collections.deque()

    def __len__(self) -> int:
        """The losses that are still to come."""
        return len(self._filled)

    def read(self, step: int, loss: Any) -> List[Tuple[int, float]]:
        """Takes the loss of a step, or None. Returns those that are now known,
        with their steps."""
        known = self._take_ready()
        # Tensors of other types may take more than a copy.
        if type(loss) is torch.Tensor and loss.device == self._device:
            if not self._spare:
                self._filled[0].wait()
                known += self._take_ready()
            slot = self._spare.pop()
            slot.fill(step, loss)
            self._filled.append(slot)
        elif loss is not None:
            known.append((step, float(loss)))
        return known

    def _take_ready(self) -> List[Tuple[int, float]]:
        known = []
        while self._filled and self._filled[0].is_ready():
            slot = self._filled.popleft()
            known.append((slot.step, slot.value()))
            self._spare.append(slot)
        return known
