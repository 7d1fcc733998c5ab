# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""An island whose model is sharded or compiled as PyTorch 2 does it.

Its argument is a JSON object with the fields of Settings; it writes events as
causeway.testing.island_program does.
"""

import datetime
import json
import os
import sys
from dataclasses import dataclass
from typing import Any, Dict

import torch
from torch import distributed
from torch.distributed.checkpoint import load, save
from torch.distributed.checkpoint.state_dict import (get_state_dict,
                                                     set_state_dict)

import causeway
from causeway.testing.island_program import say

_WIDTH = 6
_HEADS = (10, 4)


class Regression(torch.nn.Module):
    """Linear layers with a known optimum.

    An island alone finds only the columns of each weight for its own inputs.
    """

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(_WIDTH, rows) for rows in _HEADS)

    def forward(self, inputs):
        return [layer(inputs) for layer in self.layers]


def optimum() -> Regression:
    model = Regression()
    for parameter in model.parameters():
        index = torch.arange(parameter.numel()).view(parameter.shape)
        parameter.data = index % 7 / 7 - 0.5
    return model.requires_grad_(False)


def inputs_of(part: int, parts: int = 2) -> torch.Tensor:
    rows = torch.eye(_WIDTH)[part::parts]
    return torch.cat([rows, -rows])


def loss_of(model, inputs) -> torch.Tensor:
    pairs = zip(model(inputs), optimum()(inputs))
    return sum((a.float() - b).square().sum() / 2 for a, b in pairs)


def largest_error(model) -> float:
    """Returns the largest distance of a value here to the optimum's."""
    errors = []
    for own, wanted in zip(model.parameters(), optimum().parameters()):
        if hasattr(own, "full_tensor"):
            own = own.full_tensor()
        errors.append((own.detach() - wanted).abs().max())
    return float(max(errors))


@dataclass
class Settings:
    """The test's settings."""

    # Arguments of causeway.join.
    join: Dict[str, Any]
    # A function of this file.
    kind: str
    part: int = 0
    ranks: int = 1
    rank: int = 0
    group_file: str = ""
    # The folder of a checkpoint, and the step at which one is saved and the
    # process ends as if it were killed, or else the checkpoint is loaded.
    checkpoint: str = ""
    save_step: int = 0
    # The steps between two audits; 0 for none. From the step `wrong_from` on
    # this rank's gradients in audits are wrong, if it is not 0.
    audit: int = 0
    wrong_from: int = 0


def fsdp(model, **options):
    from torch.distributed.fsdp import fully_shard
    for layer in model.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def fsdp_kept(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy
    return fsdp(model, reshard_after_forward=False,
                mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                               reduce_dtype=torch.float32))


def hsdp(model):
    mesh = distributed.device_mesh.init_device_mesh(
        "cpu", (2, distributed.get_world_size() // 2),
        mesh_dim_names=("replicate", "shard"))
    return fsdp(model, mesh=mesh, reshard_after_forward=True)


def tensor_parallel(model, rows=False):
    from torch.distributed.tensor import parallel
    mesh = distributed.device_mesh.init_device_mesh(
        "cpu", (distributed.get_world_size(),))
    column = parallel.ColwiseParallel(
        output_layouts=distributed.tensor.Replicate())
    first = parallel.RowwiseParallel() if rows else column
    return parallel.parallelize_module(
        model, mesh, {"layers.0": first, "layers.1": column})


def compiled(model):
    return torch.compile(model, fullgraph=True)


def plain(model):
    return model


def checkpointed(model, optimizer, island):
    """Returns what torch.distributed.checkpoint saves and loads."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "island": island}


def train(settings: Settings, island: causeway.Island) -> None:
    torch.manual_seed(settings.part)
    model = globals()[settings.kind.replace("_optimizer", "")](Regression())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.1)
    step = optimizer.step
    if settings.kind == "compiled_optimizer":
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.15))
        step = torch.compile(optimizer.step)
    # FSDP may have whole parameters in the model from now on.
    with torch.no_grad():
        model(inputs_of(0))
    if settings.checkpoint and not settings.save_step:
        state = checkpointed(model, optimizer, island)
        load(state, checkpoint_id=settings.checkpoint)
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
    island.attach(model, optimizer)
    say("attached", step=island.step, error=largest_error(model))
    inputs = inputs_of(settings.part)
    while not island.should_stop:
        if settings.audit:
            wrong = 0 < settings.wrong_from <= island.step
            island.audit(lambda *what: loss_of(*what) * (1 + wrong),
                         inputs, every=settings.audit)
        optimizer.zero_grad()
        loss = loss_of(model, inputs)
        loss.backward()
        island.report(tokens=32 // settings.ranks, loss=loss)
        step()
        if island.step == settings.save_step:
            save(checkpointed(model, optimizer, island),
                 checkpoint_id=settings.checkpoint)
            say("saved", error=largest_error(model))
            os._exit(0)
    with island.merged_weights():
        say("end", step=island.step, merged_error=largest_error(model),
            merged_loss=float(loss_of(model, inputs_of(0, 1)).detach()))


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    if settings.ranks > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{settings.group_file}",
            rank=settings.rank, world_size=settings.ranks,
            timeout=datetime.timedelta(seconds=60))
    with causeway.join(**settings.join) as island:
        train(settings, island)


if __name__ == "__main__":
    main()
