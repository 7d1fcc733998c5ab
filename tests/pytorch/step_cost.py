# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what an island adds to a step of PyTorch's optimizer.

Trains nothing: the optimizer's step is empty. If it is a rank (RANK), FSDP2
shards the model. Prints a JSON object with

  after_step_idle_microseconds  the step's hook where nothing is due: the median
                                minus that of steps, made in turn with these,
                                of an optimizer that has no hook
  send_over_copy                the hook where a fragment is sent, over a plain
                                copy of the fragment's values, medians
  apply_over_copy               the same where an update is applied
"""

import argparse
import json
import os
import statistics
import time

import causeway
import torch

_FRAGMENT_VALUES = 1 << 24
# Steps between a send and the use of its update.
_OVERLAP = 10


class NoStep(torch.optim.SGD):
    """Has state after its first step, as most optimizers, and does nothing."""

    def step(self, closure=None):
        self.state["made"] = {}


def make_model(tensors, values, device):
    """Returns a model of one fragment."""
    return torch.nn.ParameterDict({
        f"p{i:03}": torch.nn.Parameter(
            torch.randn(values // tensors, device=device))
        for i in range(tensors)
    })


def shard(model):
    """Shards a model among the ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.distributed.init_process_group("gloo")
    fully_shard(model, mesh=init_device_mesh(
        "cpu", (torch.distributed.get_world_size(),)))


def local(parameter):
    """Returns the values of a parameter that this rank has."""
    return getattr(parameter, "_local_tensor", parameter).detach()


def timed(function, wait=lambda: None):
    began = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - began


def copy_seconds(model, wait):
    """Returns the seconds of copying all values to memory that was used."""
    source = torch.cat([local(p).flatten() for p in model.parameters()])
    target = torch.zeros_like(source)
    wait()
    return statistics.median(
        timed(lambda: target.copy_(source), wait) for _ in range(21))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinator", default="")
    parser.add_argument("--create_run", default="")
    parser.add_argument("--steps_per_round", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--tensors", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--anchors_on_device", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = make_model(args.tensors, _FRAGMENT_VALUES, args.device)
    on_gpu = args.device != "cpu"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    loss = torch.ones((), device=args.device) if on_gpu else 1.0
    if args.create_run:
        causeway.create_run(
            model, args.create_run, name="cost", batch_size=1,
            total_steps=args.steps_per_round * args.rounds, sequence_length=1,
            inner_steps_per_round=args.steps_per_round, overlap_steps=_OVERLAP,
            format="INT4")
        return
    if "RANK" in os.environ:
        shard(model)
    optimizer = NoStep(model.parameters(), lr=0.1)
    without_hook = NoStep(model.parameters(), lr=0.1)
    bare, idle, send, apply = [], [], [], []
    with causeway.join(args.coordinator, island="east",
                       anchors_on_device=args.anchors_on_device) as island:
        island.attach(model, optimizer)
        while not island.should_stop:
            place = island.step % args.steps_per_round
            if place == 0:
                for values in map(local, model.parameters()):
                    values.add_(torch.randn_like(values), alpha=1e-3)
            bare.append(timed(without_hook.step))
            island.report(tokens=1, loss=loss)
            is_idle = place not in (0, _OVERLAP)
            if on_gpu:
                wait()
                # A hook that waits for the GPU takes as long as this, 2 ms.
                if is_idle:
                    torch.cuda._sleep(4_000_000)
            seconds = timed(optimizer.step, (lambda: None) if is_idle else wait)
            (idle if is_idle else send if place == 0 else apply).append(seconds)
            # The exchange runs beside training; other steps follow one another
            # at once.
            if place <= _OVERLAP:
                time.sleep(0.1)
    copy = copy_seconds(model, wait)
    print(json.dumps({
        "after_step_idle_microseconds":
            1e6 * (statistics.median(idle) - statistics.median(bare)),
        # The last step also waits for the end of the run.
        "send_over_copy": statistics.median(send[:-1]) / copy,
        "apply_over_copy": statistics.median(apply[1:]) / copy,
        "copy_milliseconds": 1e3 * copy,
    }))


if __name__ == "__main__":
    main()
