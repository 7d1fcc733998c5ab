# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A small Llama that learns bytes of text, and a run of it for two islands.

    python3 create_run.py run 2
    causeway-coordinator --config run/run.textproto \\
        --initial_parameters run/initial.safetensors --state_dir state
"""

import sys

import causeway
import torch
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH = 64


def llama():
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128,
                    num_hidden_layers=2, num_attention_heads=4,
                    max_position_embeddings=LENGTH))


def samples(path):
    """Returns the bytes of a file, a row for each sample."""
    with open(path, "rb") as file:
        tokens = torch.tensor(list(file.read()))
    return tokens[:len(tokens) // LENGTH * LENGTH].view(-1, LENGTH)


if __name__ == "__main__":
    causeway.create_run(llama(), sys.argv[1], name="llama", total_steps=60,
                        batch_size=8, sequence_length=LENGTH, fragments=2,
                        inner_steps_per_round=10, overlap_steps=2,
                        min_islands=int(sys.argv[2]))
