# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the samples of a data set that an island trains on, and their
order."""

import itertools
from typing import Callable, Iterator, List

from .errors import InvalidArgument

_MASK = (1 << 64) - 1
_ROUNDS = 6


def _mix(x: int) -> int:
    """SplitMix64's output function, as MixBits in worker/data/permutation.h."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & _MASK
    return x ^ (x >> 31)


class Permutation:
    """A keyed permutation of 0 .. size - 1 in constant memory.

    It matches worker/data/permutation.h.
    """

    def __init__(self, size: int, key: int):
        self._size = size
        self._half_bits = max(4, ((size - 1).bit_length() + 1) // 2)
        self._keys = [
            _mix(key + (round_ + 1) * 0x9e3779b97f4a7c15)
            for round_ in range(_ROUNDS)
        ]

    def __call__(self, index: int) -> int:
        mask = (1 << self._half_bits) - 1
        word = index
        while True:
            left, right = word >> self._half_bits, word & mask
            for key in self._keys:
                left, right = right, left ^ (_mix(right ^ key) & mask)
            word = left << self._half_bits | right
            if word < self._size:
                return word


class Sampler:
    """Batches of indices for `DataLoader(batch_sampler=...)`.

    Each island has a disjoint part of the data set, or shares one and reads it
    in an order of its own. Its ranks take turns at batches of it, and go
    through it repeatedly, each time in another random order. An iterator begins
    with the batch of the run's next step, so a loop that was restarted
    continues by itself. It ends with the run, because steps that are skipped
    use up batches, too. Batches that an earlier process trained on do not come
    again before the part is used up, whatever number of ranks share the samples
    of a step.
    """

    def __init__(self, size: int, batch_size: int, part: int, parts: int,
                 next_step: Callable[[], int], total_steps: int,
                 is_over: Callable[[], bool], batches_per_step: int = 1,
                 seed: int = 0, rank: int = 0, ranks: int = 1, order: int = 0):
        """
        Args:
          size: the samples in the data set.
          batch_size: the samples in a batch of this rank.
          part: the number of this island's part, below `parts`.
          parts: the number of parts.
          next_step: returns the run's next step, from 1.
          total_steps: the run's last step.
          is_over: returns whether there is no further step to train.
          batches_per_step: the batches for each step, if gradients are
            accumulated.
          seed: the same on all ranks of an island.
          rank: the number of this rank in its island, below `ranks`.
          ranks: the number of the island's ranks.
          order: the same on all ranks, another one on each island that has the
            same part.
        """
        if batch_size < 1 or batches_per_step < 1:
            raise InvalidArgument(
                f"batch_size is {batch_size} and batches_per_step is "
                f"{batches_per_step}; both must be at least 1")
        if size < parts:
            raise InvalidArgument(
                f"the data set has {size} samples, fewer than the {parts} "
                "islands, which train on disjoint samples")
        self._batch_size = batch_size
        self._rank = rank
        self._ranks = ranks
        self._part = part
        self._parts = parts
        self._size = (size - part + parts - 1) // parts
        self._next_step = next_step
        self._total_steps = total_steps
        self._is_over = is_over
        self._batches_per_step = batches_per_step
        self._seed = seed
        self._order = order

    def __len__(self) -> int:
        """Returns the number of batches that remain if no step is skipped."""
        steps = self._total_steps - self._next_step() + 1
        return max(0, steps * self._batches_per_step)

    def __iter__(self) -> Iterator[List[int]]:
        begin = (self._next_step() - 1) * self._batches_per_step
        epoch = -1
        for batch in itertools.count(begin):
            if self._is_over():
                return
            indices: List[int] = []
            first = (batch * self._ranks + self._rank) * self._batch_size
            for place in range(first, first + self._batch_size):
                if place // self._size != epoch:
                    epoch = place // self._size
                    permutation = Permutation(self._size, self._key(epoch))
                indices.append(self._part +
                               self._parts * permutation(place % self._size))
            yield indices

    def _key(self, epoch: int) -> int:
        place = self._part + self._order * self._parts
        return _mix(_mix(_mix(self._seed) + place + 1) + epoch + 1)
