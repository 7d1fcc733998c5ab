#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""DiLoCo (arXiv:2311.08105) on torch.distributed, as people write it: every
round the workers average what they have learnt by an all-reduce, and wait."""

import torch
from torch import distributed

from trial import OUTER, Trial


@torch.no_grad()
def outer_step(parameters, anchors, outer):
    change = torch.cat([(anchor - parameter).flatten()
                        for anchor, parameter in zip(anchors, parameters)])
    distributed.all_reduce(change)
    change /= distributed.get_world_size()
    parts = change.split([anchor.numel() for anchor in anchors])
    for anchor, part in zip(anchors, parts):
        anchor.grad = part.view_as(anchor)
    outer.step()
    for anchor, parameter in zip(anchors, parameters):
        parameter.copy_(anchor)


def main():
    trial = Trial()
    distributed.init_process_group("gloo", rank=trial.rank,
                                   world_size=trial.world)
    parameters = list(trial.model.parameters())
    for parameter in parameters:
        distributed.broadcast(parameter.data, 0)
    anchors = [parameter.detach().clone() for parameter in parameters]
    outer = torch.optim.SGD(anchors, **OUTER)
    for batch in trial.batches():
        trial.backward(batch)
        trial.optimizer.step()
        if trial.step % trial.args.round == 0:
            outer_step(parameters, anchors, outer)
        trial.end_step()
    trial.finish()


if __name__ == "__main__":
    main()
