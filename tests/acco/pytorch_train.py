# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""One of two ranks that train a small GPT on bytes, for pytorch.sh.

Trains with DistributedDataParallel (--mode torch) or causeway.torch.Acco. Rank
0's last line has, without the first steps: seconds per step, tokens per second,
seconds of communication and of its exposed part per step; then the tokens in
all, the number of parameters, and the validation loss in nats per byte.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from causeway.torch import Acco

RANKS = 2
LENGTH = 128
MICRO_BATCH = 4
# Each rank's micro-batches in a step.
SHARE = 2
# Steps that are not timed.
WARM_UP = 5
VALIDATION_BATCHES = 128


class Gpt(nn.Module):
    """A transformer decoder over bytes."""

    def __init__(self, layers: int = 4, hidden: int = 128) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, hidden)
        self.positions = nn.Embedding(LENGTH, hidden)
        layer = nn.TransformerEncoderLayer(
            hidden, 4, 4 * hidden, dropout=0, activation="gelu",
            batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers,
                                            nn.LayerNorm(hidden))
        self.head = nn.Linear(hidden, 256)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, sequences: Tensor) -> Tensor:
        """Returns the mean loss of sequences of LENGTH + 1 bytes."""
        x = self.bytes(sequences[:, :-1]) + self.positions.weight
        logits = self.head(self.layers(x, self.mask))
        return F.cross_entropy(logits.flatten(0, 1),
                               sequences[:, 1:].flatten())


class Waiting(nn.Module):
    """As many parameters as Gpt, and a wait instead of its work."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        size = sum(parameter.numel() for parameter in Gpt().parameters())
        self.weight = nn.Parameter(torch.zeros(size))
        self.seconds = seconds

    def forward(self, _: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(self.seconds)
        return self.weight.mean()


class Text:
    """Sequences of a file, of which the last twentieth is for validation."""

    def __init__(self, path: str, seed: int) -> None:
        with open(path, "rb") as file:
            values = torch.frombuffer(bytearray(file.read()),
                                      dtype=torch.uint8)
        split = len(values) * 19 // 20
        self.train, self.validation = values[:split], values[split:]
        self.seed = seed

    def micro_batch(self, number: int) -> Tensor:
        return self._sample(self.train, self.seed * 10_000_000 + number)

    def validation_batch(self, number: int) -> Tensor:
        return self._sample(self.validation, number)

    @staticmethod
    def _sample(values: Tensor, seed: int) -> Tensor:
        chance = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(values) - LENGTH, (MICRO_BATCH, 1),
                               generator=chance)
        return values[starts + torch.arange(LENGTH + 1)].long()


def learning_rate(step: int, steps: int) -> float:
    """The share of the peak: a tenth of warm-up, then a cosine to a tenth."""
    warm_up = steps // 10
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return 0.55 + 0.45 * math.cos(math.pi * done)


# A step: returns all ranks' micro-batches and the times of communication.
Step = Callable[[], tuple[int, float, float]]
Optimized = tuple[torch.optim.Optimizer, Step]


def with_torch(model: nn.Module, next_batch: Callable[[], Tensor],
               groups: list[dict], arguments: dict) -> Optimized:
    wrapped = nn.parallel.DistributedDataParallel(model,
                                                  broadcast_buffers=False)
    optimizer = torch.optim.AdamW(groups, **arguments)

    def step() -> tuple[int, float, float]:
        optimizer.zero_grad(set_to_none=True)
        for number in range(SHARE):
            last = number == SHARE - 1
            with contextlib.nullcontext() if last else wrapped.no_sync():
                (wrapped(next_batch()) / SHARE).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return RANKS * SHARE, 0.0, 0.0

    return optimizer, step


def with_acco(model: nn.Module, next_batch: Callable[[], Tensor],
              groups: list[dict], arguments: dict, mode: str,
              fixed: bool) -> Optimized:
    acco = Acco(groups, torch.optim.AdamW, mode=mode, micro_batches=SHARE,
                max_norm=1.0, fixed_micro_batches=fixed, **arguments)

    def micro_batch() -> Tensor:
        loss = model(next_batch())
        loss.backward()
        return loss

    def step() -> tuple[int, float, float]:
        result = acco.step(micro_batch)
        return (sum(result.micro_batches), result.communication_seconds,
                result.exposed_seconds)

    return acco.optimizer, step


def parse_flags() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--rank", type=int, required=True)
    flags.add_argument("--store", required=True, help="file to meet at")
    flags.add_argument("--mode", required=True)
    flags.add_argument("--data", required=True)
    flags.add_argument("--steps", type=int, required=True)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--rate", type=float, default=2e-4)
    flags.add_argument("--wait", type=float, default=0)
    flags.add_argument("--fixed", action="store_true")
    return flags.parse_args()


def train(flags: argparse.Namespace) -> str:
    """Returns the line of figures."""
    torch.manual_seed(flags.seed)
    model = Waiting(flags.wait) if flags.wait else Gpt()
    text = Text(flags.data, flags.seed)
    numbers = iter(range(flags.rank, 1 << 60, RANKS))

    def next_batch() -> Tensor:
        return text.micro_batch(next(numbers))

    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1]},
              {"params": [p for p in parameters if p.dim() == 1],
               "weight_decay": 0.0}]
    arguments = {"lr": flags.rate, "betas": (0.9, 0.95), "weight_decay": 0.1}
    if flags.mode == "torch":
        optimizer, step = with_torch(model, next_batch, groups, arguments)
    else:
        optimizer, step = with_acco(model, next_batch, groups, arguments,
                                    flags.mode, flags.fixed)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, flags.steps))
    micro_batches = timed = busy = bare = 0
    for number in range(flags.steps):
        if number == WARM_UP:
            begin = time.perf_counter()
        count, communication, exposed = step()
        schedule.step()
        micro_batches += count
        if number >= WARM_UP:
            timed += count
            busy += communication
            bare += exposed
    seconds = time.perf_counter() - begin
    steps = flags.steps - WARM_UP
    with torch.no_grad():
        loss = sum(model(text.validation_batch(number)).item()
                   for number in range(VALIDATION_BATCHES))
    tokens = MICRO_BATCH * LENGTH
    return (f"{seconds / steps:.6f} {timed * tokens / seconds:.1f} "
            f"{busy / steps:.6f} {bare / steps:.6f} {micro_batches * tokens} "
            f"{sum(p.numel() for p in parameters)} "
            f"{loss / VALIDATION_BATCHES:.5f}")


def main() -> None:
    flags = parse_flags()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{flags.store}",
                            rank=flags.rank, world_size=RANKS)
    print(train(flags), flush=True)
    # No rank leaves while the other one evaluates.
    dist.barrier()


if __name__ == "__main__":
    main()
