# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Data parallel training that computes while it communicates.

ACCO (Nabli et al. 2024, arXiv 2406.02613) and data parallel training to compare
it with, over torch.distributed, with the optimizer sharded over the ranks
(ZeRO-1, Rajbhandari et al. 2020). The native trainer has the same equations
(worker/training/rank_trainer.h, docs/numerics.md). Below, theta are the
parameters, Opt is an update by the optimizer, and G and G~ are sums over all
ranks' micro-batches, of which each rank makes as many as it can.

    ddp   g at theta;                     theta' = Opt(theta, g)

    acco  half 1: theta~ = Opt(theta, G~)     not kept;   G at theta
          half 2: theta' = Opt(theta, G~ + G) committed;  G~' at theta~

The right side is computed while the left is communicated. The first step makes
its G~ at theta, before it communicates.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import time
from collections.abc import Callable
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor

from causeway.torch.collectives import Collectives
from causeway.torch.flat_parameters import FlatParameters, Parameters
from causeway.torch.sharded_optimizer import (
    MicroBatches, NonFiniteError, OptimizerClass, ReducedGradient,
    ShardedOptimizer)

# Computes a loss, calls its backward(), and returns it, alone or with the
# number of samples that it averages.
MicroBatch = Callable[[], Union[Tensor, float,
                                tuple[Union[Tensor, float], float]]]

_MODES = ("acco", "ddp")
# A rank makes at most this many times its share in a step. While it waits for a
# slow or stalled rank, each further micro-batch adds less to the step, and all
# are computed at parameters that grow older.
_MOST_SHARES = 8


@dataclasses.dataclass(frozen=True)
class StepResult(ReducedGradient):
    """Facts about a step. Everything except the times is the same on all ranks.

    Attributes:
        communication_seconds: The duration of this rank's communication and the
            optimizer's update.
        exposed_seconds: The part of it in which this rank did not compute.
    """
    communication_seconds: float
    exposed_seconds: float


class Acco:
    """Trains a model together with the other ranks of a process group.

    Takes the place of DistributedDataParallel and the optimizer:

        acco = Acco(model, torch.optim.AdamW, lr=3e-4, micro_batches=4)
        scheduler = CosineAnnealingLR(acco.optimizer, T_max=steps)

        def micro_batch():
            loss = model(next(batches))
            loss.backward()
            return loss

        for _ in range(steps):
            result = acco.step(micro_batch)
            scheduler.step()

    Between steps the model holds the committed parameters, the same on all
    ranks, and nothing is communicated: evaluate, save or change the learning
    rate there. All methods are for the thread that trains.

    Attributes:
        optimizer: The instance of optimizer_class, over this rank's shard.
            Schedulers take it.
        steps: The number of steps that are committed.
        micro_batches_made: The number of this rank's calls of micro_batch, by
            which a resumed loop finds its place in the data.
    """

    def __init__(self, model: Parameters, optimizer_class: OptimizerClass, *,
                 micro_batches: int = 2, mode: str = "acco",
                 max_norm: Optional[float] = None,
                 fixed_micro_batches: bool = False,
                 process_group: Optional[dist.ProcessGroup] = None,
                 timeout: datetime.timedelta = datetime.timedelta(minutes=30),
                 **optimizer_arguments: Any) -> None:
        """Gives all ranks rank 0's model. All ranks call it together.

        Args:
            model: A module, or parameters or groups as torch.optim takes them.
                Trainable parameters are fp32 or bf16, on one device.
            optimizer_class: Makes an optimizer that treats each value alone,
                as AdamW and SGD do. It gets flat parameters in fp32.
            micro_batches: This rank's share of a step, at least; ACCO makes
                half of them in each half of a step. Ranks may differ.
            mode: "acco" or "ddp".
            max_norm: Clips the mean gradient to this norm.
            fixed_micro_batches: Whether to wait for communication rather than
                to make more micro-batches than the share. The run can then be
                repeated bit for bit.
            process_group: For the use of this object alone. None makes a
                group of all processes.
            timeout: How long a rank of that group waits for another one.
            **optimizer_arguments: Passed to optimizer_class.

        Raises:
            ValueError: An argument is wrong, or the ranks' models or modes
                differ.
            TypeError: A parameter is neither fp32 nor bf16.
            RuntimeError: There is no process group, or a rank is lost.
        """
        if mode not in _MODES:
            raise ValueError(f"Acco: mode is {mode!r}, not one of {_MODES}")
        if micro_batches < 1:
            raise ValueError(
                f"Acco: micro_batches is {micro_batches}; at least 1 is needed")
        self._mode = mode
        self._fixed = fixed_micro_batches
        self._share = micro_batches
        self._collectives = Collectives(process_group, timeout)
        self._flat = FlatParameters(model, self._collectives.size)
        self._check_ranks()
        self._optimizer = ShardedOptimizer(
            self._flat, self._collectives, optimizer_class,
            optimizer_arguments, max_norm)
        self.optimizer = self._optimizer.inner
        self.steps = 0
        self.micro_batches_made = 0

        flat = self._flat
        self._gradients = torch.zeros(flat.padded_size, dtype=torch.float32,
                                      device=flat.device)
        self._exchange = torch.zeros_like(self._gradients)
        # Parameters on their way from rank to rank.
        self._gathered = (self._exchange if flat.dtype == torch.float32 else
                          self._exchange.to(flat.dtype))
        self._pending = MicroBatches()
        self._lost = False
        self._communication = self._exposed = 0.0
        self._stream: Any = (
            torch.cuda.Stream(flat.device)  # type: ignore[no-untyped-call]
            if flat.device.type == "cuda" else None)
        self._thread = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="acco")
        with torch.no_grad():
            flat.read(self._exchange[:flat.size])
            self._collectives.broadcast(self._exchange)
            self._optimizer.master.copy_(self._own(self._exchange))
            flat.write(self._exchange)
            for tensor in flat.rest:
                values = tensor.detach().reshape(-1).clone()
                self._collectives.broadcast(values)
                tensor.copy_(values.view(tensor.shape))

    def step(self, micro_batch: MicroBatch) -> StepResult:
        """Makes one step. All ranks call it together.

        Args:
            micro_batch: Called for each micro-batch. Computes the mean loss of
                its samples, calls backward() and returns the loss, or the loss
                and the number of samples by which it weighs (default: 1).

        Raises:
            NonFiniteError: On all ranks. The parameters and the optimizer are
                as before the step; training may continue.
            RuntimeError: A rank is lost or late, or parameters were replaced or
                added.
            Exception: What micro_batch raises. After this or a RuntimeError the
                object is unusable.
        """
        if self._lost:
            raise RuntimeError(
                "Acco: an earlier step has failed; start all ranks again from "
                "their last state_dict()")
        self._lost = True
        self._communication = self._exposed = 0.0
        self._flat.check_unchanged()
        self._optimizer.check_unchanged()
        self._flat.clear_gradients()
        try:
            if self._mode == "ddp":
                reduced = self._step_ddp(micro_batch)
            else:
                reduced = self._step_acco(micro_batch)
        except NonFiniteError:
            self._start_over()
            self._lost = False
            raise
        self._lost = False
        self.steps += 1
        return StepResult(**dataclasses.asdict(reduced),
                          communication_seconds=self._communication,
                          exposed_seconds=self._exposed)

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's part of the state, between steps.

        Each rank saves its own. It holds the committed parameters and the
        optimizer's state of the rank's shard, in fp32, and the gradients that
        the next step begins with. Tensors are those in use: save or copy them
        before the next step. The model's own state_dict() has all parameters,
        in the model's type.
        """
        return {
            **self._identity(),
            "steps": self.steps,
            "micro_batches_made": self.micro_batches_made,
            "parameters": self._optimizer.master,
            "optimizer": self.optimizer.state_dict(),
            "pending": dataclasses.asdict(self._pending),
            "gradients": (self._gradients if self._pending.count
                          else None),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state of this rank, with the same bits.

        All ranks call it together.

        Raises:
            ValueError: The state is of another rank, number of ranks, mode or
                model.
        """
        for name, value in self._identity().items():
            if state[name] != value:
                raise ValueError(f"Acco: the state's {name} is {state[name]}, "
                                 f"here it is {value}")
        self.steps = state["steps"]
        self.micro_batches_made = state["micro_batches_made"]
        self.optimizer.load_state_dict(state["optimizer"])
        self._pending = MicroBatches(**state["pending"])
        with torch.no_grad():
            self._optimizer.master.copy_(state["parameters"])
            if state["gradients"] is None:
                self._gradients.zero_()
            else:
                self._gradients.copy_(state["gradients"])
            self._gather(self._optimizer.master)
            self._flat.write(self._gathered)

    # ---- The algorithms

    @torch.no_grad()
    def _step_ddp(self, micro_batch: MicroBatch) -> ReducedGradient:
        self._accumulate(micro_batch, self._share, lambda: False)
        begin = time.perf_counter()
        reduced = self._commit(self._take_pending())
        self._communication = self._exposed = time.perf_counter() - begin
        self._flat.write(self._gathered)
        return reduced

    @torch.no_grad()
    def _step_acco(self, micro_batch: MicroBatch) -> ReducedGradient:
        second_half = max(1, self._share // 2)
        # Only the first step has no gradients from the previous one.
        if self._pending.count == 0:
            self._accumulate(micro_batch, second_half, lambda: False)
        # The gradients are copied because the real update needs them, too.
        self._exchange.copy_(self._gradients)
        own = dataclasses.replace(self._pending)
        self._overlap(lambda: self._estimate(own), micro_batch,
                      self._share - self._share // 2)
        self._flat.write(self._gathered)
        own = self._take_pending()
        reduced = self._overlap(lambda: self._commit(own), micro_batch,
                                second_half)
        self._flat.write(self._gathered)
        return reduced

    def _take_pending(self) -> MicroBatches:
        """Moves the accumulated gradients to the exchanged vector."""
        self._gradients, self._exchange = self._exchange, self._gradients
        if self._flat.dtype == torch.float32:
            self._gathered = self._exchange
        self._gradients.zero_()
        own, self._pending = self._pending, MicroBatches()
        return own

    def _overlap(self, communicate: Callable[[], ReducedGradient],
                 micro_batch: MicroBatch, share: int) -> ReducedGradient:
        """Accumulates micro-batches while another thread communicates."""
        begin = time.perf_counter()
        if self._stream is not None:
            self._stream.wait_stream(
                torch.cuda.current_stream(self._flat.device))
        future = self._thread.submit(self._on_thread, communicate)
        try:
            self._accumulate(micro_batch, share, lambda: not future.done())
        finally:
            stalled = time.perf_counter()
            concurrent.futures.wait([future])
        reduced, end = future.result()
        self._communication += end - begin
        self._exposed += max(0.0, end - stalled)
        return reduced

    def _on_thread(self, communicate: Callable[[], ReducedGradient]
                   ) -> tuple[ReducedGradient, float]:
        # PyTorch's modes and current stream belong to a thread.
        with torch.no_grad(), torch.cuda.stream(self._stream):
            reduced = communicate()
            if self._stream is not None:
                self._stream.synchronize()
        return reduced, time.perf_counter()

    def _accumulate(self, micro_batch: MicroBatch, share: int,
                    communicating: Callable[[], bool]) -> None:
        """Makes `share` micro-batches, and some more while communicating."""
        most = share if self._fixed else _MOST_SHARES // 2 * self._share
        count = 0
        while count < share or (count < most and communicating()):
            with torch.enable_grad():
                made = micro_batch()
            loss, samples = made if isinstance(made, tuple) else (made, 1)
            if not samples > 0:
                raise ValueError(f"Acco: micro_batch returned {samples} "
                                 "samples; it must be more than 0")
            # This waits for the loss, so a device is never far behind.
            self._pending.loss += float(loss) * samples
            self._pending.samples += samples
            self._pending.count += 1
            self._flat.take_gradients(self._gradients, samples)
            self.micro_batches_made += 1
            count += 1

    # ---- What the communicating thread does, on the exchanged vector

    def _estimate(self, own: MicroBatches) -> ReducedGradient:
        reduced = self._optimizer.reduce(own, self._exchange)
        self._gather(self._optimizer.estimate())
        return reduced

    def _commit(self, own: MicroBatches) -> ReducedGradient:
        reduced = self._optimizer.reduce(own, self._exchange)
        self._optimizer.step()
        self._gather(self._optimizer.master)
        return reduced

    def _gather(self, shard: Tensor) -> None:
        """Collects all ranks' shards of parameters in self._gathered."""
        self._own(self._gathered).copy_(shard)
        self._collectives.all_gather(self._gathered)

    # ---- Else

    def _own(self, flat: Tensor) -> Tensor:
        begin = self._collectives.rank * self._flat.shard_size
        return flat[begin:begin + self._flat.shard_size]

    def _start_over(self) -> None:
        """Drops all gradients and goes back to the committed parameters."""
        self._pending = MicroBatches()
        with torch.no_grad():
            self._gradients.zero_()
            self._gather(self._optimizer.master)
            self._flat.write(self._gathered)

    def _identity(self) -> dict[str, Any]:
        return {"mode": self._mode, "ranks": self._collectives.size,
                "rank": self._collectives.rank,
                "fingerprint": self._flat.fingerprint()}

    def _check_ranks(self) -> None:
        """Raises ValueError if the ranks' models or modes differ."""
        facts = self._collectives.all_gather_numbers(
            [self._flat.fingerprint(), _MODES.index(self._mode)],
            self._flat.device)
        for rank, (model, mode) in enumerate(facts):
            if model != facts[0][0]:
                raise ValueError(
                    f"Acco: rank {rank} has other trainable parameters, "
                    "shapes, types, groups or buffers than rank 0")
            if mode != facts[0][1]:
                raise ValueError(f"Acco: rank {rank} has mode "
                                 f"{_MODES[int(mode)]!r}, but rank 0 "
                                 f"{_MODES[int(facts[0][1])]!r}")
