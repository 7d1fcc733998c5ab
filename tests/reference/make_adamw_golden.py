# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes adamw_golden.safetensors: parameters after updates by PyTorch.

torch.optim.AdamW with torch.nn.utils.clip_grad_norm_, double precision, on the
tensors of a small model; the gradients of update t are the initial values of
seed 100 + t times 4^(t % 2), so that some are clipped and some are not. Weight
decay applies to matrices only.

Row t - 1 of `parameters` is the flat model after update t, and entry t - 1 of
`norms` the norm of that update's gradients before they are clipped.
"""

import math
import pathlib

import torch

from initial_values import initial_values, tensors
from tensor_file import write_tensors

CONFIG = {"layers": 1, "hidden_size": 6, "intermediate_size": 5, "heads": 3,
          "kv_heads": 3, "vocab_size": 7, "tie_embeddings": False,
          "init_stddev": 0.5}
WEIGHT_DECAY = 0.1
UPDATES = 5


def flat_tensor(name, shape, stddev, seed):
    values = initial_values(name, math.prod(shape), stddev, seed)
    return torch.tensor(values, dtype=torch.float64).view(shape)


def initial_weights():
    """Returns the model's tensors by name, in layout order."""
    return {spec[0]: flat_tensor(*spec, seed=1).requires_grad_()
            for spec in tensors(CONFIG)}


def set_gradients(weights, update):
    """Sets the clipped gradients of an update; returns their norm."""
    for spec in tensors(CONFIG):
        gradient = flat_tensor(*spec, seed=100 + update)
        weights[spec[0]].grad = gradient * 4.0 ** (update % 2)
    return torch.nn.utils.clip_grad_norm_(weights.values(), 20.0)


def learning_rate(update):
    return 0.01 * update


def adamw(weights):
    return torch.optim.AdamW(
        [{"params": [w for w in weights if w.dim() > 1],
          "weight_decay": WEIGHT_DECAY},
         {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0}],
        betas=(0.9, 0.95), eps=1e-8)


def step(optimizer, update):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(update)
    optimizer.step()


def flat(weights):
    """Returns a copy of the model's parameters, in layout order."""
    return torch.cat([w.detach().flatten() for w in weights.values()])


def golden():
    """Returns the file's tensors and metadata."""
    weights = initial_weights()
    optimizer = adamw(weights.values())
    norms, parameters = [], []
    for update in range(1, UPDATES + 1):
        norms.append(set_gradients(weights, update))
        step(optimizer, update)
        parameters.append(flat(weights))
    return {"norms": torch.stack(norms),
            "parameters": torch.stack(parameters)}, {}


if __name__ == "__main__":
    write_tensors(pathlib.Path(__file__).with_name("adamw_golden.safetensors"),
                  *golden())
