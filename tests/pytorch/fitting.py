# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a model on the bytes of texts: on an island, or data parallel."""

import os
import sys

sys.path.insert(0, "examples/pytorch")

# pylint: disable=wrong-import-position
import torch
import train_gpt
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

import causeway
from causeway.sampler import Sampler

LENGTH = 128
BATCH = 8


def split(paths):
    """Returns what is trained on, and up to 512 windows that are not."""
    data = train_gpt.Windows(paths, LENGTH)
    every = 20 * max(1, len(data) // 10240)
    held_out = Subset(data, range(0, len(data), every))
    return Subset(data, [i for i in range(len(data)) if i % 20]), held_out


def fit(steps, model, replica, batches, held_out, optimizers, island=None):
    """Trains `replica`, which is `model` or wraps it.

    optimizers: those that together make a step, attached if there is an island.
    """
    print(f"validation loss {train_gpt.evaluate(model, held_out):.4f} at the "
          "start", flush=True)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: train_gpt.rate(step + 1, steps))
        for optimizer in optimizers
    ]
    for step, batch in enumerate(batches, 1):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = replica(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if island is not None:
            island.report(tokens=batch.numel() - len(batch), loss=loss)
        for optimizer in optimizers:
            optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        if step == steps or (island is not None and island.should_stop):
            break
    print(f"validation loss {train_gpt.evaluate(model, held_out):.4f} at the "
          "end")


def train(args, model, attached, optimizers):
    """Trains as a rank if the environment has RANK and the other variables of
    init_process_group, or else on an island with the parameters of `attached`.

    args: have data, the paths of texts, and steps and seed.
    """
    data, held_out = split(args.data)
    if "RANK" in os.environ:
        # The samples of an island; DDP gives all ranks rank 0's parameters.
        distributed.init_process_group("gloo")
        sampler = Sampler(len(data), BATCH, distributed.get_rank(),
                          distributed.get_world_size(), lambda: 1, args.steps,
                          lambda: False, seed=args.seed)
        fit(args.steps, model, DistributedDataParallel(model),
            DataLoader(data, batch_sampler=sampler), held_out, optimizers)
        return
    with causeway.join() as island:
        sampler = island.sampler(data, BATCH, seed=args.seed)
        island.attach(attached, optimizers)
        fit(args.steps, model, model, DataLoader(data, batch_sampler=sampler),
            held_out, optimizers, island)
