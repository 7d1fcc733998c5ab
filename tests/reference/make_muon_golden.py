# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes muon_golden.safetensors: parameters after a few updates by Muon.

Muon in double precision. The orthogonalization does not iterate matrix
products: PyTorch decomposes the matrix, and the polynomials apply to its
singular values. Embedding, head and gains use torch.optim.AdamW. Model,
gradients and clipping are those of make_adamw_golden.py.

Each tensor has a row per update, the flat model after it; its entry in the
metadata is the MuonConfig (proto/run_config.proto) in Protobuf's text format.
"""

import math
import pathlib

import torch

from make_adamw_golden import (WEIGHT_DECAY, adamw, flat, initial_weights,
                               learning_rate, set_gradients, step)
from tensor_file import write_tensors

UPDATES = 3

# The coefficients (a, b, c) of an iteration of Newton-Schulz.
ITERATIONS = [(3.4445, -4.7750, 2.0315)] * 5

# By name: momentum, learning rate factor.
CASES = {"default": (0.95, 1),
         "other_rate": (0.9, 3),
         "without_momentum": (0, 1)}


def orthogonalized(matrix):
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / values.norm()
    for a, b, c in ITERATIONS:
        values = a * values + b * values**3 + c * values**5
    return left @ torch.diag(values) @ right


def step_scale(rows, columns):
    return 0.2 * math.sqrt(max(rows, columns))


def is_matrix_of_block(name, weight):
    return ".layers." in name and weight.dim() == 2


def run(momentum, factor):
    weights = initial_weights()
    matrices = {name: weight for name, weight in weights.items()
                if is_matrix_of_block(name, weight)}
    buffers = {name: torch.zeros_like(weight)
               for name, weight in matrices.items()}
    optimizer = adamw([weight for name, weight in weights.items()
                       if name not in matrices])
    rows = []
    for update in range(1, UPDATES + 1):
        set_gradients(weights, update)
        step(optimizer, update)
        rate = learning_rate(update)
        with torch.no_grad():
            for name, weight in matrices.items():
                buffer = momentum * buffers[name] + weight.grad
                buffers[name] = buffer
                direction = weight.grad + momentum * buffer
                change = (rate * factor * step_scale(*weight.shape)
                          * orthogonalized(direction))
                weight.copy_(weight * (1 - rate * WEIGHT_DECAY) - change)
        rows.append(flat(weights))
    return torch.stack(rows)


def golden():
    """Returns the file's tensors and metadata."""
    fields = ("momentum", "learning_rate_factor")
    return ({name: run(*case) for name, case in CASES.items()},
            {name: " ".join(f"{field}: {value}"
                            for field, value in zip(fields, case))
             for name, case in CASES.items()})


if __name__ == "__main__":
    write_tensors(pathlib.Path(__file__).with_name("muon_golden.safetensors"),
                  *golden())
