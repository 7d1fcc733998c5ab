# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes llama_golden.txt: loss, logits and gradients of small models.

This implementation of the Llama architecture shares nothing with that in C++:
it uses PyTorch tensors, automatic differentiation, double precision. It follows
the published equations with the rotary order of Hugging Face ("rotate half").

Run once, with Debian 12's python3-torch 1.13.1 (which has no transformers
package beside it), and again only when a case is added:

  /usr/bin/python3 tests/reference/make_llama_golden.py \
      > tests/reference/llama_golden.txt
"""

import math

import torch
import torch.nn.functional as F

from initial_values import initial_values, tensors

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
}

# Llama 3's values, which the cases do not change.
LOW_FREQUENCY_FACTOR, HIGH_FREQUENCY_FACTOR = 1, 4


def token(index, vocab_size):
    return (index * index * 7 + index * 3 + 1) % vocab_size


def rms_norm(x, gain, epsilon):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * gain


def stretched(frequency, config):
    """The frequencies as Llama 3.1 and later stretch them."""
    factor, length = config["rope_factor"], config["rope_original_length"]
    wave = 2 * math.pi / frequency
    longest_kept = length / HIGH_FREQUENCY_FACTOR
    shortest_divided = length / LOW_FREQUENCY_FACTOR
    smooth = ((length / wave - LOW_FREQUENCY_FACTOR)
              / (HIGH_FREQUENCY_FACTOR - LOW_FREQUENCY_FACTOR))
    between = (1 - smooth) * frequency / factor + smooth * frequency
    result = torch.where(wave < longest_kept, frequency, between)
    return torch.where(wave > shortest_divided, frequency / factor, result)


def rotate(x, config):
    length, dim = x.shape[-2:]
    frequency = config["rope_theta"] ** (
        -torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    if "rope_factor" in config:
        frequency = stretched(frequency, config)
    angle = torch.outer(torch.arange(length, dtype=x.dtype), frequency)
    angle = torch.cat([angle, angle], dim=-1)
    low, high = x.chunk(2, dim=-1)
    half_turned = torch.cat([-high, low], dim=-1)
    return x * angle.cos() + half_turned * angle.sin()


def attention(x, weights, prefix, config):
    batch, length, hidden = x.shape
    heads, kv_heads = config["heads"], config["kv_heads"]
    dim = hidden // heads

    def project(name, count):
        y = x @ weights[prefix + name + ".weight"].T
        return y.view(batch, length, count, dim).transpose(1, 2)

    query = rotate(project("self_attn.q_proj", heads), config)
    key = rotate(project("self_attn.k_proj", kv_heads), config)
    value = project("self_attn.v_proj", kv_heads)
    key = key.repeat_interleave(heads // kv_heads, dim=1)
    value = value.repeat_interleave(heads // kv_heads, dim=1)
    scores = query @ key.transpose(-1, -2) / math.sqrt(dim)
    future = torch.ones(length, length).triu(1).bool()
    weights_of_keys = scores.masked_fill(future, -math.inf).softmax(-1)
    mixed = (weights_of_keys @ value).transpose(1, 2)
    mixed = mixed.reshape(batch, length, hidden)
    return mixed @ weights[prefix + "self_attn.o_proj.weight"].T


def logits_of(tokens, weights, config):
    epsilon = config["norm_epsilon"]
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[tokens]
    for block in range(config["layers"]):
        prefix = f"model.layers.{block}."
        gain = weights[prefix + "input_layernorm.weight"]
        x = x + attention(rms_norm(x, gain, epsilon), weights, prefix, config)
        gain = weights[prefix + "post_attention_layernorm.weight"]
        y = rms_norm(x, gain, epsilon)
        gate = y @ weights[prefix + "mlp.gate_proj.weight"].T
        up = y @ weights[prefix + "mlp.up_proj.weight"].T
        down = weights[prefix + "mlp.down_proj.weight"]
        x = x + (F.silu(gate) * up) @ down.T
    x = rms_norm(x, weights["model.norm.weight"], epsilon)
    return x @ weights.get("lm_head.weight", embedding).T


def write_case(name, config):
    weights = {}
    for tensor, shape, stddev in tensors(config):
        values = initial_values(tensor, math.prod(shape), stddev, seed=1)
        weights[tensor] = torch.tensor(values, dtype=torch.float64).view(shape)
        # Norm gains of one would hide a gain that is left out.
        if stddev == 0:
            weights[tensor] *= 1 + 0.0625 * (torch.arange(shape[0]) % 5)
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
