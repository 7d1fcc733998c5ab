# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Handles a device that is behind the host."""

import collections
from typing import Any, Deque, List, Optional, Tuple

import torch

from .native import NativeIsland

# PyTorch declares types for only some of it.
cuda: Any = torch.cuda

# The steps that the device may be behind before the host waits for it.
_MOST_LOSSES = 32


def _number_of_stream(device: torch.device) -> int:
    """Returns the `cuda_stream` of the current stream; makes no object for it
    if PyTorch has the function that its compiled code calls."""
    read = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if read is None:
        return int(cuda.current_stream(device).cuda_stream)
    return int(read(device.index))


class TrainingStream:
    """The CUDA stream on which the training loop writes the parameters.

    device: the device of the parameters.
    current: the stream at the last call of `follow`.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.current = cuda.current_stream(device)

    @staticmethod
    def is_captured() -> bool:
        """Returns whether calls are captured in a graph instead of made."""
        return bool(cuda.is_current_stream_capturing())

    def follow(self, native: NativeIsland) -> None:
        """Lets the library wait for the stream that is current now."""
        if _number_of_stream(self.device) == self.current.cuda_stream:
            return
        stream = cuda.current_stream(self.device)
        # The last step may still be running in the other one.
        stream.wait_stream(self.current)
        native.set_stream(stream.cuda_stream)
        self.current = stream


class _Slot:
    """A loss that the device has copied to host memory by the time of an event.

    step: the step of the loss.
    """

    def __init__(self, value: torch.Tensor):
        self._value = value
        self._event = cuda.Event()
        self.step = 0

    def fill(self, step: int, loss: torch.Tensor, stream: Any) -> None:
        self.step = step
        self._value.copy_(loss if loss.dim() == 0 else loss.reshape(()),
                          non_blocking=True)
        self._event.record(stream)

    def is_ready(self) -> bool:
        return bool(self._event.query())

    def wait(self) -> None:
        self._event.synchronize()

    def value(self) -> float:
        return float(self._value)


def _make_slots() -> List[_Slot]:
    # Copies wait for nothing if the memory is pinned.
    values = torch.empty(_MOST_LOSSES, dtype=torch.float32, device="cpu",
                         pin_memory=True)
    return [_Slot(value) for value in values.unbind()]


class Losses:
    """Reads losses. Does not wait for those on a device, but reads them once
    they are computed."""

    def __init__(self, stream: Optional[TrainingStream]):
        self._stream = stream
        self._spare = [] if stream is None else _make_slots()
        self._filled: Deque[_Slot] = collections.deque()

    def __len__(self) -> int:
        """The losses that are still to come."""
        return len(self._filled)

    def read(self, step: int, loss: Any) -> List[Tuple[int, float]]:
        """Takes the loss of a step, or None. Returns the losses that are now
        known, with their steps."""
        known = self._take_ready()
        stream = self._stream
        # Tensors of other types may take more than a copy.
        if (stream is not None and type(loss) is torch.Tensor
                and loss.device == stream.device):
            if not self._spare:
                self._filled[0].wait()
                known += self._take_ready()
            slot = self._spare.pop()
            slot.fill(step, loss, stream.current)
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
