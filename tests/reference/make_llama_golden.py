# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes llama_golden.safetensors: loss, logits and gradients of small models.

llama.py computes them, in double precision. The metadata name the models, each
with its ModelConfig (proto/run_config.proto) in Protobuf's text format. The
tensors of a model are

  NAME/batch            the number of its sequences
  NAME/loss             the mean over them
  NAME/logits           those of the first sequence's last position
  NAME/norm/TENSOR      the norm of a gradient
  NAME/gradient/TENSOR  some of its values, evenly spaced: rows of index, value
"""

import math
import pathlib

import torch
import torch.nn.functional as F

from initial_values import initial_values, tensors
from llama import logits_of
from tensor_file import write_tensors

# The number of values, or a few more, that are written of each gradient.
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
    # The second and fourth block do not rotate, as some of SmolLM3 do not.
    "no_rope": dict(COMMON, layers=4, hidden_size=24, intermediate_size=20,
                    heads=6, kv_heads=2, vocab_size=23, sequence_length=9,
                    tie_embeddings=True, batch=2, no_rope_interval=2),
    # OLMo 2 has this shape.
    "post_norm_untied": dict(COMMON, hidden_size=64, intermediate_size=40,
                             heads=4, kv_heads=2, vocab_size=23,
                             sequence_length=9, tie_embeddings=False, batch=3,
                             head_dim=48, qk_norm=True,
                             qk_norm_across_heads=True, post_norm=True),
    "post_norm_tied": dict(COMMON, layers=3, hidden_size=18,
                           intermediate_size=21, heads=6, kv_heads=2,
                           vocab_size=19, sequence_length=7,
                           tie_embeddings=True, batch=2, qkv_bias=True,
                           head_dim=10, qk_norm=True, post_norm=True),
    # No published model has all of it, and half a head has an odd width.
    "all_untied": dict(COMMON, hidden_size=18, intermediate_size=21, heads=6,
                       kv_heads=2, vocab_size=19, sequence_length=7,
                       tie_embeddings=False, batch=2, head_dim=10,
                       qkv_bias=True, qk_norm=True),
}


def token(index, vocab_size):
    return (index * index * 7 + index * 3 + 1) % vocab_size


def text_of(config):
    """Returns the ModelConfig."""
    others = ("batch", "rope_factor", "rope_original_length")
    text = " ".join(f"{key}: {value}".lower() for key, value in config.items()
                    if key not in others)
    if "rope_factor" in config:
        text += (f" rope_scaling {{ factor: {config['rope_factor']} "
                 f"original_length: {config['rope_original_length']} }}")
    return text


def tensors_of(config):
    """Returns the model's tensors in the file, without its name."""
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

    result = {"batch": torch.tensor(config["batch"], dtype=torch.float64),
              "loss": loss.detach(), "logits": logits[0, -1].detach()}
    for tensor, weight in weights.items():
        gradient = weight.grad.flatten()
        indices = torch.arange(0, len(gradient),
                               max(1, len(gradient) // SAMPLES))
        result["norm/" + tensor] = gradient.norm()
        result["gradient/" + tensor] = torch.stack(
            [indices.double(), gradient[indices]], dim=1)
    return result


def golden():
    """Returns the file's tensors and metadata."""
    torch.set_num_threads(1)
    return ({f"{name}/{tensor}": values for name, config in CASES.items()
             for tensor, values in tensors_of(config).items()},
            {name: text_of(config) for name, config in CASES.items()})


if __name__ == "__main__":
    write_tensors(pathlib.Path(__file__).with_name("llama_golden.safetensors"),
                  *golden())
