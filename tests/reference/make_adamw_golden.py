# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes adamw_golden.txt: parameters after a few updates by PyTorch.

torch.optim.AdamW with torch.nn.utils.clip_grad_norm_, double precision, on the
tensors of a small model; the gradients of update t are the initial values of
seed 100 + t times 4^(t % 2), so that some are clipped and some are not. Weight
decay applies to matrices only.

Run once, with Debian 12's python3-torch 1.13.1:

  /usr/bin/python3 tests/reference/make_adamw_golden.py \
      > tests/reference/adamw_golden.txt
"""

import math

import torch

from initial_values import initial_values, tensors

CONFIG = {"layers": 1, "hidden_size": 6, "intermediate_size": 5, "heads": 3,
          "kv_heads": 3, "vocab_size": 7, "tie_embeddings": False,
          "init_stddev": 0.5}
UPDATES = 5


def main():
    specs = list(tensors(CONFIG))

    def flat_tensor(name, shape, stddev, seed):
        values = initial_values(name, math.prod(shape), stddev, seed)
        return torch.tensor(values, dtype=torch.float64).view(shape)

    weights = [flat_tensor(*spec, seed=1).requires_grad_() for spec in specs]
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights if w.dim() > 1], "weight_decay": 0.1},
         {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0}],
        betas=(0.9, 0.95), eps=1e-8)
    for update in range(1, UPDATES + 1):
        for weight, spec in zip(weights, specs):
            gradient = flat_tensor(*spec, seed=100 + update)
            weight.grad = gradient * 4.0 ** (update % 2)
        norm = torch.nn.utils.clip_grad_norm_(weights, 20.0)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * update
        optimizer.step()
        print(f"update {update} norm {norm.item():.12g}")
        for weight in weights:
            for value in weight.detach().flatten():
                print(f"{value.item():.12g}")


if __name__ == "__main__":
    main()
