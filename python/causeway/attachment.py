# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Gives the tensors of a PyTorch model to the library."""

import contextlib
import ctypes
import itertools
import sys
import types
import weakref
from dataclasses import dataclass
from typing import (Any, Callable, Iterator, List, Mapping, NamedTuple,
                    Optional, Tuple)

import torch

from . import _library
from .device import TrainingStream
from .errors import (InvalidArgument, ModelMismatch, TensorMoved,
                     Unimplemented)
from .native import NativeIsland
from .parameters import Slot, check_module, match, reshard
from .ranks import Ranks
from .joined_run import Run, TensorInfo

# The index of the first value in a tensor, and the values from there on.
Shards = Mapping[str, Tuple[int, torch.Tensor]]

_DTYPES = {
    torch.float32: _library.FLOAT32,
    torch.bfloat16: _library.BFLOAT16,
    torch.float16: _library.FLOAT16,
}


@dataclass
class Local:
    """This rank's part of a tensor of the run."""

    info: TensorInfo
    slot: Slot
    # The values here, without a graph; keeps their memory alive.
    values: torch.Tensor
    first: int
    whole: bool
    # Where the library reads and writes them.
    address: int


def _shard_of(parameter: Any, name: str) -> Optional[Tuple[int, torch.Tensor]]:
    """Returns the local part of a DTensor; None for other tensors."""
    if not hasattr(parameter, "to_local"):
        return None
    placements = tuple(parameter.placements)
    local = parameter.to_local().detach()
    sharded = [dimension for dimension, placement in enumerate(placements)
               if not placement.is_replicate()]
    if not sharded:
        return 0, local
    if len(sharded) > 1 or not placements[sharded[0]].is_shard(0):
        raise Unimplemented(
            f"{name} is placed as {placements}; an island takes whole tensors "
            "and those that are sharded once, along their first dimension, as "
            "fully_shard and ColwiseParallel do. Shard this module otherwise, "
            "or exclude the tensor from the run")
    mesh, dimension = parameter.device_mesh, sharded[0]
    rows = parameter.shape[0]
    rows_per_rank = -(-rows // mesh.size(dimension))
    row = min(rows, rows_per_rank * mesh.get_local_rank(dimension))
    return row * (parameter.numel() // max(1, rows)), local


class _Place(NamedTuple):
    """Where a parameter is found, and its values on this rank."""

    owner: Mapping[str, Any]
    key: str
    parameter: Any
    read_address: Callable[[], int]
    address: int
    name: str

    def is_kept(self) -> bool:
        owner, key, parameter, read_address, address, _ = self
        return owner.get(key) is parameter and read_address() == address


def _address_of(parameter: Any) -> Callable[[], int]:
    """Returns a function for the address of this rank's values of a
    parameter."""
    if hasattr(parameter, "_local_tensor"):
        # This takes a fraction of to_local()'s time.
        return lambda: int(parameter._local_tensor.data_ptr())
    read: Callable[[], int] = parameter.data_ptr
    return read


class Attachment:
    """A model's parameters, checked against a run and given to the library.

    model: the model, as it was attached.
    locals: this rank's parts of the run's tensors.
    stream: the stream of parameters in CUDA memory; None for others.
    """

    def __init__(self, model: torch.nn.Module, run: Run,
                 shards: Optional[Shards] = None):
        """Raises ModelMismatch, or InvalidArgument if `model` is no module."""
        shards = shards or {}
        check_module(model)
        self.model = model
        reshard(model)
        self.locals = [
            self._local(
                info, slot,
                shards.get(info.name) or _shard_of(slot.parameter, info.name))
            for info, slot in match(model, run, shards)
        ]
        devices = {local.values.device for local in self.locals}
        self.stream = next((TrainingStream(device) for device in devices
                            if device.type == "cuda"), None)
        self._places: List[_Place] = []
        for local in self.locals:
            slot, name = local.slot, local.info.name
            # The location of the caller's shards is unknown.
            read: Callable[[], int] = lambda: 0
            if name not in shards:
                read = _address_of(slot.parameter)
            self._places.append(_Place(slot.owner, slot.key, slot.parameter,
                                       read, read(), name))
        self._turns = itertools.cycle(self._places)
        # The blocks of merged() that have begun and not ended.
        self._merged = 0

    @staticmethod
    def _local(info: TensorInfo, slot: Slot,
               shard: Optional[Tuple[int, torch.Tensor]]) -> Local:
        first, values = (0, slot.parameter) if shard is None else shard
        values = values.detach()
        if hasattr(values, "to_local"):
            values = values.to_local()
        if values.dtype not in _DTYPES:
            raise ModelMismatch(f"{info.name} is of type {values.dtype}; a run "
                                "exchanges float32, bfloat16 and float16")
        if values.device.type not in ("cpu", "cuda"):
            raise ModelMismatch(
                f"{info.name} is on the device {values.device}; an island has "
                "its parameters in host or CUDA memory")
        if not values.is_contiguous():
            raise ModelMismatch(
                f"{info.name} is not contiguous (strides {values.stride()}); "
                "make it so before the optimizer is made: parameter.data = "
                "parameter.data.contiguous()")
        return Local(info, slot, values, first, shard is None,
                     values.data_ptr())

    def buffers(self) -> "ctypes.Array[_library.Buffer]":
        """Returns the argument of causeway_attach, with the memory that it
        points to."""
        buffers = (_library.Buffer * len(self.locals))()
        for buffer, local in zip(buffers, self.locals):
            self._describe(buffer, local.info, local.values)
            if not local.whole:
                buffer.first, buffer.count = local.first, local.values.numel()
        return buffers

    @staticmethod
    def _describe(buffer: _library.Buffer, info: TensorInfo,
                  values: torch.Tensor) -> None:
        buffer.name = info.name.encode()
        buffer.shape = (ctypes.c_int64 * len(info.shape))(*info.shape)
        buffer.dimensions = len(info.shape)
        buffer.dtype = _DTYPES[values.dtype]
        buffer.data = values.data_ptr()
        if values.device.type == "cuda":
            buffer.device = _library.CUDA
            stream = torch.cuda.current_stream(values.device)
            buffer.stream = stream.cuda_stream

    def check_one(self, native: NativeIsland) -> None:
        """Checks one of the parameters, the next one in each call.

        Ends the island and raises TensorMoved if it has moved.
        """
        place = next(self._turns)
        if place.is_kept():
            return
        # FSDP has whole parameters in the model after a forward pass.
        reshard(self.model)
        if not place.is_kept():
            self._fail(native, place)

    @staticmethod
    def _fail(native: NativeIsland, place: _Place) -> None:
        error = TensorMoved(
            f"the memory of {place.name} was replaced after island.attach(): "
            "by model.to(), by model.share_memory() or sending the model to a "
            "spawned process, by assigning .data, or by an optimizer that "
            "keeps parameters elsewhere. Do that before attach()")
        native.fail(error)
        raise error

    def _check_at_end(self, native: NativeIsland) -> None:
        """Lets a model be elsewhere after the last step, as after model.cpu(),
        if the library's memory still has the same values."""
        reshard(self.model)
        for place, local in zip(self._places, self.locals):
            now = place.owner.get(place.key)
            now = getattr(now, "_local_tensor", now)
            if local.values.data_ptr() != local.address or not (
                    place.is_kept() or isinstance(now, torch.Tensor) and
                    now.dtype == local.values.dtype and
                    now.shape == local.values.shape and
                    torch.equal(now.detach().cpu(), local.values.cpu())):
                self._fail(native, place)

    def check_all(self, native: NativeIsland) -> None:
        """Checks all parameters as check_one does."""
        for _ in self._places:
            self.check_one(native)

    def not_finite(self) -> Optional[str]:
        """Returns the name of a parameter with values that are not finite."""
        for local in self.locals:
            if not bool(torch.isfinite(local.values).all()):
                return local.info.name
        return None

    def values_changed(self) -> None:
        """Bumps autograd's version counters and resets FSDP's copies, because
        the values changed."""
        reshard(self.model)
        for local in self.locals:
            # A view shares its tensor's version, and this counts as a change.
            local.values.reshape(-1)[:0].zero_()

    def follow(self, native: NativeIsland, leaves: bool = False) -> None:
        """Lets the library use the parameters, once the stream has done with
        them; for the last time if the island leaves.

        Raises TensorMoved as check_all does, and InvalidArgument while they
        have the merged values, which the library would take for the island's
        own.
        """
        if self._merged:
            raise InvalidArgument(
                "the model has the run's merged values, and this needs the "
                "island's own: call it after the block of merged_weights()")
        if leaves:
            self._check_at_end(native)
        else:
            self.check_all(native)
        if self.stream is not None:
            self.stream.follow(native)

    @contextlib.contextmanager
    def merged(self, native: NativeIsland, ranks: Ranks) -> Iterator[None]:
        """Puts the merged values into the parameters, and restores their own
        afterwards."""
        merged = ranks.first(lambda told: self._read_merged(native)
                             if told is None else told)
        reshard(self.model)
        own = [local.values.to("cpu", copy=True) for local in self.locals]
        self._merged += 1
        try:
            for index, local in enumerate(self.locals):
                values = merged[index] if merged else self._empty(local)
                values = values.to(local.values.device)
                ranks.broadcast(values)
                part = values.view(-1)[local.first:]
                local.values.copy_(part[:local.values.numel()].view(
                    local.values.shape))
            yield
        finally:
            reshard(self.model)
            for local, values in zip(self.locals, own):
                local.values.copy_(values)
            self._merged -= 1

    @staticmethod
    def _empty(local: Local) -> torch.Tensor:
        # The loop may have set other defaults.
        return torch.empty(local.info.shape, dtype=torch.float32, device="cpu")

    def _read_merged(self, native: NativeIsland) -> List[torch.Tensor]:
        """Returns the merged values of the whole tensors, on rank 0."""
        merged = [self._empty(local) for local in self.locals]
        buffers = (_library.Buffer * len(merged))()
        for buffer, local, values in zip(buffers, self.locals, merged):
            self._describe(buffer, local.info, values)
        native.read_merged(buffers)
        return merged


def _is_rehearsal() -> bool:
    """Returns whether torch.distributed.checkpoint makes this step, to have an
    optimizer create its state."""
    frame: Optional[types.FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_init_optim_state":
            return True
        frame = frame.f_back
    return False


def _between_graphs(function: Callable[[], None]) -> Callable[..., None]:
    """Returns a function for hooks that torch.compile leaves out of graphs."""

    def call(*_: Any) -> None:
        function()

    if not hasattr(torch, "compiler"):
        return call
    disable: Any = torch.compiler.disable
    call_apart: Callable[..., None] = disable(call)
    # Only compiled code needs a call apart, which takes longer than the hook
    # itself. Newer versions tell where a thread is.
    compiler_of_thread: Any = getattr(torch._C._dynamo.eval_frame,
                                      "get_eval_frame_callback", None)
    if compiler_of_thread is None:
        return call_apart

    def hook(*_: Any) -> None:
        if compiler_of_thread() is None:
            function()
        else:
            call_apart()

    skip: Any = torch._dynamo.decorators.skip
    skip(hook)
    return hook


class StepHook:
    """Calls functions before and after each step of an optimizer."""

    # The last hook of each optimizer.
    _last: ("weakref.WeakKeyDictionary[Any, weakref.ReferenceType[StepHook]]"
            ) = weakref.WeakKeyDictionary()

    def __init__(self, optimizer: torch.optim.Optimizer,
                 after_step: Callable[[], None],
                 before_step: Callable[[], None] = lambda: None,
                 is_over: Callable[[], bool] = lambda: True):
        self._last[optimizer] = weakref.ref(self)
        self._is_over = is_over
        self._optimizer: Any = optimizer
        self._handles: List[Any] = []
        self._rehearsal = False
        if hasattr(optimizer, "register_step_post_hook"):

            def before() -> None:
                # Optimizers have no state before their first step.
                self._rehearsal = not optimizer.state and _is_rehearsal()
                if not self._rehearsal:
                    before_step()

            def after() -> None:
                if not self._rehearsal:
                    after_step()

            self._handles = [
                optimizer.register_step_post_hook(_between_graphs(after)),
                optimizer.register_step_pre_hook(_between_graphs(before)),
            ]
        else:
            self._replace(after_step, before_step)

    @classmethod
    def release(cls, optimizer: torch.optim.Optimizer) -> None:
        """Removes the hook of an island that is over, because it would raise
        the error that has ended the island.

        Raises InvalidArgument if the island is not over.
        """
        found = cls._last.get(optimizer)
        hook = found() if found is not None else None
        if hook is None:
            return
        if not hook._is_over():
            raise InvalidArgument(
                "the optimizer is attached to another island, which still "
                "trains: end that one with leave() and close()")
        hook.remove()

    def _replace(self, after_step: Callable[[], None],
                 before_step: Callable[[], None]) -> None:
        # Before PyTorch 2.0, replace this object's own method. Schedulers
        # expect a bound one, and mark those that they have replaced.
        step = self._optimizer.step

        def step_and_report(_: Any, *args: Any, **kwargs: Any) -> Any:
            if self._optimizer is not None:
                before_step()
            result = step(*args, **kwargs)
            if self._optimizer is not None:
                after_step()
            return result

        step_and_report.__dict__.update(
            getattr(step, "__func__", step).__dict__)
        self._optimizer.step = types.MethodType(step_and_report,
                                                self._optimizer)

    def skipped(self) -> bool:
        """Returns whether GradScaler has voided a fused optimizer's step."""
        found = vars(self._optimizer).get("found_inf")
        return found is not None and bool(found)

    def learning_rate(self) -> float:
        rate = self._optimizer.param_groups[0].get("lr", 0.0)
        if isinstance(rate, float):
            return rate
        if isinstance(rate, torch.Tensor) and rate.device.type != "cpu":
            # Reading it would wait for the device.
            return 0.0
        return float(rate)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._optimizer = None
