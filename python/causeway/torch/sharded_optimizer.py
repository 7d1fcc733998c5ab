# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Any element-wise optimizer of PyTorch on one rank's shard (ZeRO-1)."""

from __future__ import annotations

import collections
import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor, nn

from causeway.torch.collectives import Collectives
from causeway.torch.flat_parameters import FlatParameters

OptimizerClass = Callable[..., torch.optim.Optimizer]

# These look at shapes, at sparse gradients, or at several gradients in a step.
_REFUSED = ("Adafactor", "LBFGS", "SparseAdam")


class NonFiniteError(FloatingPointError):
    """The loss or the gradient of all ranks together is not finite."""


@dataclasses.dataclass
class MicroBatches:
    """The micro-batches whose gradients a rank has accumulated.

    Attributes:
        samples: The sum of their weights.
        loss: The sum of their losses, each times its weight.
        count: Their number.
    """
    samples: float = 0.0
    loss: float = 0.0
    count: int = 0


@dataclasses.dataclass(frozen=True)
class ReducedGradient:
    """Facts about the gradient that the ranks have accumulated together.

    Attributes:
        loss: The mean over the samples.
        gradient_norm: The norm of the mean gradient, before clipping.
        samples: The samples of all ranks.
        micro_batches: The number of micro-batches of each rank.
    """
    loss: float
    gradient_norm: float
    samples: float
    micro_batches: tuple[int, ...]


class ShardedOptimizer:
    """An optimizer over this rank's shard of a flat vector, in fp32.

    Attributes:
        inner: The instance of the caller's class. Its groups are the caller's;
            each holds one parameter, the group's part of the shard, which may
            be empty.
        master: The shard of the committed parameters.
        gradient: The shard of the gradient that the next update uses.
    """

    def __init__(self, flat: FlatParameters, collectives: Collectives,
                 optimizer_class: OptimizerClass, arguments: dict[str, Any],
                 max_norm: Optional[float]) -> None:
        self._collectives = collectives
        self._max_norm = max_norm
        self.master = torch.zeros(flat.shard_size, dtype=torch.float32,
                                  device=flat.device)
        self.gradient = torch.zeros_like(self.master)
        self._members: list[tuple[nn.Parameter, slice]] = []
        first = collectives.rank * flat.shard_size
        groups = []
        for options, where in flat.groups:
            begin, end = (min(max(bound - first, 0), flat.shard_size)
                          for bound in (where.start, where.stop))
            parameter = nn.Parameter(self.master[begin:end])
            self._members.append((parameter, slice(begin, end)))
            groups.append({**options, "params": [parameter]})
        self.inner = optimizer_class(groups, **arguments)
        if type(self.inner).__name__ in _REFUSED:
            raise ValueError(
                f"Acco: {type(self.inner).__name__} does not treat each value "
                "of a dense gradient alone, as AdamW and SGD do")

    def check_unchanged(self) -> None:
        """Raises RuntimeError if parameters were added to the optimizer."""
        if (sum(len(group["params"]) for group in self.inner.param_groups)
                != len(self._members)):
            raise RuntimeError(
                "Acco: the optimizer has other parameters than when Acco was "
                "made; make a new one with all of them")

    def reduce(self, own: MicroBatches, gradients: Tensor) -> ReducedGradient:
        """Makes the gradient the mean over the samples of all ranks, clipped.

        Args:
            own: This rank's micro-batches.
            gradients: The sum of their gradients, the whole vector.

        Raises:
            NonFiniteError: On all ranks.
            RuntimeError: See Collectives.
        """
        self._collectives.reduce_scatter(gradients, self.gradient)
        norm = torch.linalg.vector_norm(self.gradient, dtype=torch.float64)
        samples, losses, counts, squares = zip(
            *self._collectives.all_gather_numbers(
                [own.samples, own.loss, own.count, float(norm) ** 2],
                gradients.device))
        loss = sum(losses) / sum(samples)
        norm = math.sqrt(sum(squares)) / sum(samples)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NonFiniteError(
                f"Acco: the loss is {loss} and the gradient's norm {norm}: "
                "training has diverged, or a batch is damaged")
        clip = 1.0
        if self._max_norm is not None:
            clip = min(1.0, self._max_norm / (norm + 1e-6))
        self.gradient.mul_(clip / sum(samples))
        return ReducedGradient(loss, norm, sum(samples),
                               tuple(int(count) for count in counts))

    def step(self) -> None:
        """Updates the master and the optimizer's state.

        Raises:
            RuntimeError: The optimizer has replaced its parameter's memory.
        """
        self._update(self.master)

    def estimate(self) -> Tensor:
        """Returns the master as step() would make it; changes nothing.

        Takes memory for a copy of the shard and of the optimizer's state.
        """
        state = self.inner.state
        options = [dict(group) for group in self.inner.param_groups]
        self.inner.state = collections.defaultdict(
            dict, {key: copy.deepcopy(value) for key, value in state.items()})
        try:
            estimated = self.master.clone()
            self._update(estimated)
        finally:
            self.inner.state = state
            for group, before in zip(self.inner.param_groups, options):
                group.clear()
                group.update(before)
            for parameter, where in self._members:
                parameter.data = self.master[where]
        return estimated

    def _update(self, values: Tensor) -> None:
        for parameter, where in self._members:
            parameter.data = values[where]
            parameter.grad = self.gradient[where]
        self.inner.step()
        for parameter, where in self._members:
            parameter.grad = None
            if parameter.data_ptr() != values[where].data_ptr():
                raise RuntimeError(
                    f"Acco: {type(self.inner).__name__} has replaced its "
                    "parameter's memory; it must update in place")
