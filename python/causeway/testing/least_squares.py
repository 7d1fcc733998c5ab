# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A model with a known optimum; an island alone finds only a part of it.

The loss of the island with the number `part` out of two is half the squared
distance of every second value, beginning with value number `part`, to the
wanted one.
"""

import torch

from causeway.joined_run import Run, TensorInfo

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
               data_order=0, step=0, total_steps=1, batch_size=1,
               sequence_length=1, parameters=0, fragments=1,
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
        # The index of the first value in the whole tensor, where this is only a
        # part.
        self.first = {}
        if tied:
            self.embedding = torch.nn.Embedding(10, 6)
            self.embedding.weight = self.head.weight

    def forward(self, part: int, parts: int = 2) -> torch.Tensor:
        loss = torch.zeros(())
        for name, parameter in self.named_parameters():
            error = parameter.float() - self.wanted(name)
            begin = (part - self.first.get(name, 0)) % parts
            loss = loss + error.reshape(-1)[begin::parts].square().sum() / 2
        return loss

    def wanted(self, name: str) -> torch.Tensor:
        """Returns the values of the optimum, between -2 and 4."""
        shape = self.get_parameter(name).shape
        first = self.first.get(name, 0)
        index = torch.arange(first, first + shape.numel())
        return (index % 7 / 7 + len(name) % 5 - 2).reshape(shape)

    def keep_rows(self, begin: int, end: int) -> None:
        """Makes the head a part of its rows."""
        rows = self.head.weight.detach()[begin:end].clone()
        self.head.weight = torch.nn.Parameter(rows)
        self.first["head.weight"] = begin * rows.shape[1]


def largest_error(model: LeastSquares) -> float:
    """Returns the largest distance of a trained value to the wanted one."""
    return max(
        float((parameter.detach().float() - model.wanted(name)).abs().max())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.numel())
