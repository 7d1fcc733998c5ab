#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains the GPT of examples/pytorch and says how fast.

It is an island, or, with the variables of init_process_group in the
environment, a rank of DiLoCo as people write it themselves: every round the
ranks average what they have learnt, in fp32, by an all-reduce over Gloo, and
wait for it.
"""

import json
import os
import sys
import time

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
for _folder in ("python", "examples/pytorch"):
    sys.path.insert(0, os.path.join(_ROOT, _folder))

# pylint: disable=wrong-import-position
import torch
from torch import distributed

import causeway
import train_gpt_island
from causeway.sampler import Sampler

# Equal to the islands' settings in benchmark.sh.
_ROUND = 40
_OUTER = {"lr": 0.8, "momentum": 0.4, "nesterov": True}


class PlainDiloco:
    """DiLoCo (arXiv:2311.08105, algorithm 1), with the methods of an island."""

    def __init__(self, args):
        self.total_steps = args.steps
        self.step = 0
        self._seed = args.seed

    def sampler(self, data, batch_size):
        return Sampler(len(data), batch_size, int(os.environ["RANK"]),
                       int(os.environ["WORLD_SIZE"]), lambda: self.step + 1,
                       self.total_steps,
                       lambda: self.step == self.total_steps, seed=self._seed)

    def attach(self, model, _optimizer):
        distributed.init_process_group("gloo")
        self._parameters = list(model.parameters())
        for parameter in self._parameters:
            distributed.broadcast(parameter.data, 0)
        self._anchors = [p.detach().clone() for p in self._parameters]
        self._outer = torch.optim.SGD(self._anchors, **_OUTER)

    def report(self, tokens, loss):
        del tokens, loss

    @property
    def should_stop(self):
        """Called after each optimizer's step."""
        self.step += 1
        if self.step % _ROUND == 0 or self.step == self.total_steps:
            self._outer_step()
        return self.step == self.total_steps

    @torch.no_grad()
    def _outer_step(self):
        pairs = list(zip(self._anchors, self._parameters))
        change = torch.cat([(a - p).flatten() for a, p in pairs])
        distributed.all_reduce(change)
        change /= distributed.get_world_size()
        begin = 0
        for anchor, _ in pairs:
            end = begin + anchor.numel()
            anchor.grad = change[begin:end].view_as(anchor)
            begin = end
        self._outer.step()
        for anchor, parameter in pairs:
            parameter.copy_(anchor)


class Timed:
    """An island that notes when the first and the last step ended."""

    def __init__(self, island):
        self._island = island
        self.begin = None
        self.end = None
        self.tokens = 0

    def __getattr__(self, name):
        return getattr(self._island, name)

    def report(self, tokens, loss):
        self.tokens += tokens
        self._island.report(tokens=tokens, loss=loss)

    @property
    def should_stop(self):
        stop = self._island.should_stop
        self.end = time.monotonic()
        if self.begin is None:
            self.begin, self.tokens = self.end, 0
        return stop


def main():
    args = train_gpt_island.arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if "RANK" in os.environ:
        island = Timed(PlainDiloco(args))
        train_gpt_island.train(args, island)
    else:
        with causeway.join() as joined:
            island = Timed(joined)
            train_gpt_island.train(args, island)
    print(json.dumps({"tokens_per_second":
                      island.tokens / (island.end - island.begin)}))


if __name__ == "__main__":
    main()
