# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""One worker's training, for all programs of the comparison with peers.

    trial = Trial()
    for batch in trial.batches():
        trial.backward(batch)
        trial.optimizer.step()
        trial.end_step()
    trial.finish()

The model, the text and the inner optimizer are those of examples/pytorch, but
smaller. A step takes a simulated time: it computes a small batch, and sleeps
in both passes of each block until these have lasted --block_ms, and after the
backward pass until all has lasted a third longer than the blocks, so that no
worker waits for a processor. WORKER and WORKERS say which worker this is, of
how many.

Prints "step NUMBER SECONDS" after each step, by the system's monotonic clock,
and one line of JSON at the end (see finish).
"""

import argparse
import contextlib
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
from torch import nn
from torch.utils.data import DataLoader, Subset

import train_gpt
from causeway.sampler import Sampler

OUTER = {"lr": 0.8, "momentum": 0.4, "nesterov": True}


def carried_bytes(device="wan0"):
    """Returns the bytes that came and went in this network namespace."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        for line in file:
            name, _, counters = line.partition(":")
            if name.strip() == device:
                fields = counters.split()
                return int(fields[0]) + int(fields[8])
    return 0


def _lengthen(block, seconds):
    """Makes a module take this long: a third forward, the rest backward."""
    end = 0

    def begin(share):
        nonlocal end
        end = time.monotonic() + seconds * share

    def sleep(*_):
        time.sleep(max(0, end - time.monotonic()))

    def before(_module, inputs):
        begin(1 / 3)
        if inputs[0].requires_grad:
            inputs[0].register_hook(sleep)

    def after(_module, _inputs, output):
        sleep()
        if output.requires_grad:
            output.register_hook(lambda _: begin(2 / 3))

    block.register_forward_pre_hook(before)
    block.register_forward_hook(after)


class Trial:
    """One worker's model, data, optimizer and measurements.

    step: the number of the step to train, from 1.
    """

    def __init__(self, arguments=None):
        parser = argparse.ArgumentParser()
        parser.add_argument("--data", nargs="+", required=True)
        parser.add_argument("--steps", type=int, default=240)
        parser.add_argument("--round", type=int, default=40)
        parser.add_argument("--batch", type=int, default=4)
        parser.add_argument("--length", type=int, default=64)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--block_ms", type=float, default=30)
        self.args = parser.parse_args(arguments)
        self.rank = int(os.environ.get("WORKER", 0))
        self.world = int(os.environ.get("WORKERS", 1))
        self.step = 1
        torch.set_num_threads(1)
        torch.manual_seed(self.args.seed)
        data = train_gpt.Windows(self.args.data, self.args.length)
        # A twentieth is never trained on. Up to 512 windows of it are measured.
        every = 20 * max(1, len(data) // 10240)
        self._held_out = Subset(data, range(0, len(data), every))
        self.data = Subset(data, [i for i in range(len(data)) if i % 20])
        self.model = train_gpt.GPT(width=128, heads=4, length=self.args.length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 2e-3,
                                           (0.9, 0.95))
        self.tokens = self.args.batch * self.args.length
        self._begin = None
        self._snapshots = []
        for block in self.model.h:
            _lengthen(block, self.args.block_ms / 1e3)
        self._seconds = len(self.model.h) * self.args.block_ms / 1e3 * 4 / 3

    def batches(self, sampler=None):
        """Returns this worker's batches, from that of the step to train on."""
        return iter(DataLoader(self.data, batch_sampler=sampler or Sampler(
            len(self.data), self.args.batch, self.rank, self.world,
            lambda: self.step, self.args.steps,
            lambda: self.step > self.args.steps, seed=self.args.seed)))

    def backward(self, batch, model=None):
        """Computes gradients, and sets the learning rate; returns the loss."""
        end = time.monotonic() + self._seconds
        for group in self.optimizer.param_groups:
            group["lr"] = 2e-3 * train_gpt.rate(self.step, self.args.steps)
        self.model.zero_grad()
        loss = (model or self.model)(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        time.sleep(max(0, end - time.monotonic()))
        return loss.detach()

    def end_step(self, merged=contextlib.nullcontext):
        """Counts a step.

        At the end of a round it calls `snapshot` within the context that
        `merged` makes, in which the model has merged values. With None it does
        not.
        """
        now = time.monotonic()
        print(f"step {self.step} {now:.4f}", flush=True)
        if self._begin is None:
            self._begin = (self.step, now, carried_bytes())
        self.step += 1
        if merged and (self.step - 1) % self.args.round == 0:
            with merged():
                self.snapshot()

    def snapshot(self):
        """Keeps a copy of the merged model, to be evaluated in the end."""
        if self.rank == 0 and self._begin:
            self._snapshots.append((
                self.step - 1, time.monotonic() - self._begin[1],
                {name: value.clone()
                 for name, value in self.model.state_dict().items()}))

    def finish(self):
        """Evaluates, and prints the worker's figures.

        Call it when the last step is made and merged. `curve` has the step, the
        seconds and the validation loss at the end of each round.
        """
        step, begin, carried = self._begin
        steps = self.step - 1 - step
        seconds = time.monotonic() - begin
        figures = {
            "steps": steps,
            "tokens_per_second": steps * self.tokens / seconds,
            "bytes_per_step": (carried_bytes() - carried) / steps,
            "curve": [],
        }
        if not self._snapshots or self._snapshots[-1][0] != self.step - 1:
            self.snapshot()
        for step, seconds, state in self._snapshots:
            self.model.load_state_dict(state)
            loss = train_gpt.evaluate(self.model, self._held_out)
            figures["curve"].append([step, round(seconds, 3), loss])
        print(json.dumps(figures), flush=True)
