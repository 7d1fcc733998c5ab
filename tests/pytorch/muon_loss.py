# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains the GPT of examples/pytorch with Muon, on an island or, with the
variables of init_process_group in the environment, data parallel.

PyTorch's Muon (2.9) trains the matrices of blocks, and AdamW the rest.
"""

import argparse

import fitting
import torch
import train_gpt


def make_optimizers(model, rate):
    matrices = [parameter for name, parameter in model.named_parameters()
                if name.startswith("h.") and parameter.dim() == 2]
    chosen = set(map(id, matrices))
    others = [parameter for parameter in model.parameters()
              if id(parameter) not in chosen]
    return [
        torch.optim.Muon(matrices, rate, weight_decay=0.01,
                         adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, rate, (0.9, 0.95)),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", required=True, help="text files")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = train_gpt.GPT(length=fitting.LENGTH)
    fitting.train(args, model, model, make_optimizers(model, args.lr))


if __name__ == "__main__":
    main()
