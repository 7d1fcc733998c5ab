# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A model with a known optimum, of which an island alone finds only a part.

The loss of the island with the number `part` out of two is half the squared
distance of every second value, beginning with value number `part`, to the
wanted one.
"""

import torch

from causeway.run import Run, TensorInfo

# The parameters of the model.
SHAPES = {
    "layers.0.weight": (4, 6),
    "layers.0.bias": (4,),
    "layers.1.weight": (4, 6),
    "layers.1.bias": (4,),
    "head.weight": (10, 6),
}


def run_of(shapes=None, exclude=()):
    """Returns a run of tensors with these names and shapes."""
    shapes = SHAPES if shapes is None else shapes
    return Run(id="test-1", name="test", island="east", shard=0, shards=1,
               step=0, total_steps=1, batch_size=1, sequence_length=1,
               parameters=0, fragments=1,
               tensors=tuple(TensorInfo(n, s, 0) for n, s in shapes.items()),
               configuration={"tensors": {"exclude": list(exclude)}})


class LeastSquares(torch.nn.Module):
    """Two blocks and a head, whose output is a loss."""

    def __init__(self, tied: bool = False):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(6, 4) for _ in range(2))
        self.head = torch.nn.Linear(6, 10, bias=False)
        self.register_buffer("mask", torch.ones(3))
        if tied:
            self.embedding = torch.nn.Embedding(10, 6)
            self.embedding.weight = self.head.weight

    def forward(self, part: int, parts: int = 2) -> torch.Tensor:
        loss = torch.zeros(())
        for name, parameter in self.named_parameters():
            error = parameter.float() - wanted(name, parameter.shape)
            loss = loss + error.reshape(-1)[part::parts].square().sum() / 2
        return loss


def wanted(name: str, shape) -> torch.Tensor:
    """Returns the values of the optimum, between -2 and 4."""
    count = 1
    for extent in shape:
        count *= extent
    values = torch.arange(count) % 7 / 7 + len(name) % 5 - 2
    return values.reshape(shape)


def largest_error(model: torch.nn.Module) -> float:
    """Returns the largest distance of a trained value to the wanted one."""
    return max(
        float((parameter.detach().float() -
               wanted(name, parameter.shape)).abs().max())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad)
