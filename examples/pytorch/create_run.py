# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the files with which a coordinator begins a run of train_gpt.py.

    python3 create_run.py --out gpt
    causeway-coordinator --config gpt/run.textproto \\
        --initial_parameters gpt/initial.safetensors --state_dir state
"""

import argparse

import causeway
import torch

from train_gpt import GPT


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="folder for the files")
    parser.add_argument("--islands", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=8, help="of each island")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--round", type=int, default=5,
                        help="steps between two exchanges of a fragment")
    parser.add_argument("--momentum", type=float, default=0.2,
                        help="of the outer step")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    causeway.create_run(
        GPT(length=args.length), args.out, name="gpt", seed=args.seed,
        total_steps=args.steps, batch_size=args.batch,
        sequence_length=args.length, inner_steps_per_round=args.round,
        fragments=3, outer_momentum=args.momentum,
        min_islands=args.islands, max_islands=args.islands)


if __name__ == "__main__":
    main()
