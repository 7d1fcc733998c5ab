# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes llama_golden.txt: loss, logits and gradients of small models.

llama.py computes them, in double precision.

Run once, with Debian 12's python3-torch 1.13.1 (which has no transformers
package beside it), and again only when a case is added:

  /usr/bin/python3 tests/reference/make_llama_golden.py \
      > tests/reference/llama_golden.txt
"""

import math

import torch
import torch.nn.functional as F

from initial_values import initial_values, tensors
from llama import logits_of

# The number of evenly spaced values that are written of each gradient.
SAMPLES = 16

COMMON = {"layers": 2, "rope_theta": 10000.0, "norm_epsilon": 1e-5,
          "init_stddev": 0.25}
CASES = {
    "untied": dict(COMMON, hidden_size=16, intermediate_size=24, heads=4,
                   kv_heads=4, vocab_size=19, sequence_length=7,
                   tie_embeddings=False, batch=2),
    "tied_grouped": dict(COMMON, hidden_size=24, intermediate_size=20, heads=6,
                         kv_heads=2, vocab_size=23, sequence_length=9,
                         tie_embeddings=True, batch=3),
    # Longer than one attention block of the CPU backend; one key head.
    "long_multi_query": dict(COMMON, layers=3, hidden_size=12,
                             intermediate_size=31, heads=2, kv_heads=1,
                             vocab_size=11, sequence_length=150,
                             tie_embeddings=False, batch=1, rope_theta=500.0),
    # One of its six frequencies is kept, two lie in between, three are divided.
    "llama3_rope": dict(COMMON, hidden_size=24, intermediate_size=20, heads=2,
                        kv_heads=2, vocab_size=23, sequence_length=60,
                        tie_embeddings=True, batch=1, rope_theta=100.0,
                        rope_factor=8.0, rope_original_length=40),
    # Biases, as in Qwen2.5.
    "biases_tied": dict(COMMON, hidden_size=64, intermediate_size=40, heads=4,
                        kv_heads=2, vocab_size=23, sequence_length=9,
                        tie_embeddings=True, batch=3, init_stddev=0.1,
                        qkv_bias=True),
    # QK-norm and heads that are wider together than the model, as in Qwen3.
    "qk_norm_wide_tied": dict(COMMON, hidden_size=24, intermediate_size=40,
                              heads=4, kv_heads=2, vocab_size=23,
                              sequence_length=9, tie_embeddings=True, batch=3,
                              head_dim=16, qk_norm=True),
    "qk_norm_narrow_untied": dict(COMMON, hidden_size=40, intermediate_size=24,
                                  heads=2, kv_heads=2, vocab_size=19,
                                  sequence_length=7, tie_embeddings=False,
                                  batch=2, head_dim=16, qk_norm=True),
    # No published model has all of it, and half a head has an odd width.
    "all_untied": dict(COMMON, hidden_size=18, intermediate_size=21, heads=6,
                       kv_heads=2, vocab_size=19, sequence_length=7,
                       tie_embeddings=False, batch=2, head_dim=10,
                       qkv_bias=True, qk_norm=True),
}

def token(index, vocab_size):
    return (index * index * 7 + index * 3 + 1) % vocab_size


def write_case(name, config):
    weights = {}
    for tensor, shape, stddev in tensors(config):
        values = initial_values(tensor, math.prod(shape), stddev, seed=1)
        weights[tensor] = torch.tensor(values, dtype=torch.float64).view(shape)
        # Gains of one and biases of zero would hide that they are left out.
        if stddev == 0:
            weights[tensor] += 0.0625 * (torch.arange(shape[0]) % 5)
        weights[tensor].requires_grad_()
    length = config["sequence_length"]
    stream = [token(i, config["vocab_size"])
              for i in range(config["batch"] * length + 1)]
    tokens = torch.tensor(stream[:-1]).view(-1, length)
    targets = torch.tensor(stream[1:]).view(-1, length)
    logits = logits_of(tokens, weights, config)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()

    print("case", name)
    for key, value in config.items():
        print("config", key, int(value) if isinstance(value, bool) else value)
    print(f"loss {loss.item():.12g}")
    for value in logits[0, -1]:
        print(f"logit {value.item():.12g}")
    for tensor, weight in weights.items():
        gradient = weight.grad.flatten()
        print(f"gradient {tensor} {gradient.norm().item():.12g}")
        step = max(1, len(gradient) // SAMPLES)
        for index in range(0, len(gradient), step):
            print(f"value {index} {gradient[index].item():.12g}")


def main():
    torch.set_num_threads(1)
    for name, config in CASES.items():
        write_case(name, config)


if __name__ == "__main__":
    main()
