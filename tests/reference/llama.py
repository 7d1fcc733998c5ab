# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The Llama architecture in PyTorch, with the additions of Qwen2.5, Qwen3,
SmolLM3 and OLMo 2.

This implementation shares nothing with the one in C++: it uses PyTorch tensors,
automatic differentiation, and whatever precision its weights have. It follows
the published equations with the rotary order of Hugging Face ("rotate half").

`weights` maps Hugging Face names to tensors. `config` is a dictionary with the
names of ModelConfig (proto/run_config.proto), where rope_scaling is rope_factor
and rope_original_length. Biases and norms are there if their weights are, and a
QK-norm is across heads if its gain is longer than a head.
"""

import math

import torch
import torch.nn.functional as F

# Llama 3's values, which no configuration changes.
LOW_FREQUENCY_FACTOR, HIGH_FREQUENCY_FACTOR = 1, 4


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


def attention(x, weights, block, config):
    batch, length, hidden = x.shape
    prefix = f"model.layers.{block}."
    interval = config.get("no_rope_interval", 0)
    rotated = ((lambda y: rotate(y, config))
               if not interval or (block + 1) % interval else lambda y: y)
    heads, kv_heads = config["heads"], config["kv_heads"]
    dim = config.get("head_dim", hidden // heads)

    def project(name, count):
        y = x @ weights[prefix + name + "_proj.weight"].T
        y = y + weights.get(prefix + name + "_proj.bias", 0)
        gain = weights.get(prefix + name + "_norm.weight")
        if gain is not None:
            y = rms_norm(y.view(batch, length, -1, len(gain)), gain,
                         config["norm_epsilon"])
        return y.view(batch, length, count, dim).transpose(1, 2)

    query = rotated(project("self_attn.q", heads))
    key = rotated(project("self_attn.k", kv_heads))
    value = project("self_attn.v", kv_heads)
    key = key.repeat_interleave(heads // kv_heads, dim=1)
    value = value.repeat_interleave(heads // kv_heads, dim=1)
    scores = query @ key.transpose(-1, -2) / math.sqrt(dim)
    future = torch.ones(length, length).triu(1).bool()
    weights_of_keys = scores.masked_fill(future, -math.inf).softmax(-1)
    mixed = (weights_of_keys @ value).transpose(1, 2)
    mixed = mixed.reshape(batch, length, heads * dim)
    return mixed @ weights[prefix + "self_attn.o_proj.weight"].T


def logits_of(tokens, weights, config):
    epsilon = config["norm_epsilon"]
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[tokens]
    for block in range(config["layers"]):
        prefix = f"model.layers.{block}."

        def norm(y, name):
            gain = weights[f"{prefix}{name}_layernorm.weight"]
            return rms_norm(y, gain, epsilon)

        def mlp(y):
            gate = y @ weights[prefix + "mlp.gate_proj.weight"].T
            up = y @ weights[prefix + "mlp.up_proj.weight"].T
            down = weights[prefix + "mlp.down_proj.weight"]
            return (F.silu(gate) * up) @ down.T

        if prefix + "post_feedforward_layernorm.weight" in weights:
            y = attention(x, weights, block, config)
            x = x + norm(y, "post_attention")
            x = x + norm(mlp(x), "post_feedforward")
        else:
            y = norm(x, "input")
            x = x + attention(y, weights, block, config)
            x = x + mlp(norm(x, "post_attention"))
    x = rms_norm(x, weights["model.norm.weight"], epsilon)
    return x @ weights.get("lm_head.weight", embedding).T
