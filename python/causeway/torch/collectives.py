# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on flat vectors, for NCCL and for the Gloo of PyTorch 1.13."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from typing import Optional

import torch
import torch.distributed as dist
from torch import Tensor


class Collectives:
    """Operations that all ranks of a process group call in the same order.

    They wait for their result and raise RuntimeError within the group's
    timeout if a rank is lost or comes too late. With NCCL they only enqueue,
    and PyTorch's watchdog then ends the process. For use by one thread at a
    time.

    Attributes:
        rank: This rank's number in the group.
        size: The number of ranks.
    """

    def __init__(self, group: Optional[dist.ProcessGroup],
                 timeout: datetime.timedelta) -> None:
        """Uses `group`, or makes one of all processes with `timeout`."""
        if not dist.is_initialized():
            raise RuntimeError(
                "Acco: call torch.distributed.init_process_group() first")
        # A group of our own leaves the default group to the caller's thread.
        self._group = group or dist.new_group(timeout=timeout)
        self._native = dist.get_backend(self._group) == "nccl"
        self.rank = dist.get_rank(self._group)
        self.size = dist.get_world_size(self._group)

    def broadcast(self, flat: Tensor) -> None:
        """Gives all ranks rank 0's vector, of any type."""
        with self._explained("broadcast"):
            dist.broadcast(flat.view(torch.uint8),
                           dist.get_global_rank(self._group, 0),
                           group=self._group)

    def reduce_scatter(self, flat: Tensor, received: Tensor) -> None:
        """Sums this rank's shard over all ranks.

        Args:
            flat: The shards of all ranks, in fp32.
            received: The sum. Gloo's ranks add in order of rank.
        """
        with self._explained("reduce-scatter"):
            if self._native:
                dist.reduce_scatter_tensor(received, flat, group=self._group)
                return
            parts = torch.empty_like(flat)
            dist.all_to_all_single(parts, flat, group=self._group)
        parts = parts.view(self.size, -1)
        received.copy_(parts[0])
        for part in parts[1:]:
            received.add_(part)

    def all_gather(self, flat: Tensor) -> None:
        """Fills the other ranks' shards of `flat`, of any type."""
        # Gloo does not support bf16, but bytes.
        flat = flat.view(torch.uint8)
        shards = flat.view(self.size, -1)
        with self._explained("all-gather"):
            if self._native:
                dist.all_gather_into_tensor(flat, shards[self.rank],
                                            group=self._group)
            else:
                dist.all_gather(list(shards), shards[self.rank],
                                group=self._group)

    def all_gather_numbers(self, numbers: Sequence[float],
                           device: torch.device) -> list[list[float]]:
        """Returns the numbers of each rank; all ranks pass equally many."""
        own = torch.tensor(numbers, dtype=torch.float64, device=device)
        gathered = own.repeat(self.size, 1)
        self.all_gather(gathered.view(-1))
        return gathered.tolist()

    @contextlib.contextmanager
    def _explained(self, operation: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(
                f"Acco: rank {self.rank} could not finish the {operation}: "
                "another rank has ended, or did not come within the timeout. "
                "Start all ranks again from their last state_dict(). "
                f"The cause: {error}") from error
