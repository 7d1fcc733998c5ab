# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes muon_golden.safetensors: parameters after a few updates by Muon.

Muon in double precision, where the orthogonalization is not iterated with
matrix products: PyTorch decomposes the matrix, and the polynomials are taken of
its singular values. Embedding, head and gains take torch.optim.AdamW. Model and
gradients are those of make_adamw_golden.py, and so is the clipping.

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

# By name: the divisor of the matrix beside its norm, and (a, b, c).
COEFFICIENTS = {
    "JORDAN": (1, [(3.4445, -4.7750, 2.0315)] * 5),
    "POLAR_EXPRESS": (1.02, [
        (8.156554524902461, -22.48329292557795, 15.878769915207462),
        (4.042929935166739, -2.808917465908714, 0.5000178451051316),
        (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
        (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
        (2.3465413258596377, -1.7097828382687081, 0.42323551169305323)]),
    "MULOCO": (1, [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377),
                   (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
                   (2.8366, -3.0525, 1.2012)]),
}

# Coefficients, scale, Nesterov, momentum, learning rate factor.
CASES = [("JORDAN", "MATCH_RMS", "true", 0.95, 1),
         ("POLAR_EXPRESS", "SPECTRAL", "false", 0.9, 3),
         ("MULOCO", "MATCH_RMS", "true", 0, 1)]


def orthogonalized(matrix, coefficients):
    divisor, polynomials = COEFFICIENTS[coefficients]
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / (divisor * values.norm())
    for a, b, c in polynomials:
        values = a * values + b * values**3 + c * values**5
    return left @ torch.diag(values) @ right


def step_scale(scale, rows, columns):
    if scale == "SPECTRAL":
        return math.sqrt(rows / columns)
    return 0.2 * math.sqrt(max(rows, columns))


def is_matrix_of_block(name, weight):
    return ".layers." in name and weight.dim() == 2


def run(coefficients, scale, nesterov, momentum, factor):
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
                direction = buffer
                if nesterov == "true":
                    direction = weight.grad + momentum * buffer
                change = (rate * factor * step_scale(scale, *weight.shape)
                          * orthogonalized(direction, coefficients))
                weight.copy_(weight * (1 - rate * WEIGHT_DECAY) - change)
        rows.append(flat(weights))
    return torch.stack(rows)


def golden():
    """Returns the file's tensors and metadata."""
    names = ("coefficients", "scale", "nesterov", "momentum",
             "learning_rate_factor")
    return ({case[0]: run(*case) for case in CASES},
            {case[0]: " ".join(f"{name}: {value}"
                               for name, value in zip(names, case))
             for case in CASES})


if __name__ == "__main__":
    write_tensors(pathlib.Path(__file__).with_name("muon_golden.safetensors"),
                  *golden())
