# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A second implementation of common/tensors/model_layout.h.

It makes tensors and initial values, and uses only integer arithmetic, so that
both give the same bits.
"""

import math
import struct

MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def hash_name(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def to_float(x):
    """Rounds to fp32."""
    return struct.unpack("f", struct.pack("f", x))[0]


def standard_normal(key, index):
    total = 0
    for word in range(3):
        bits = mix(key ^ mix(3 * index + word))
        for shift in (0, 16, 32, 48):
            total += (bits >> shift) & 0xFFFF
    return to_float(float(2 * total + 12 - 12 * 65536)) * 2.0**-17


def initial_values(name, size, stddev, seed):
    """Returns the flat fp32 values of one tensor, exactly, as Python floats."""
    if stddev == 0:
        return [0.0 if name.endswith(".bias") else 1.0] * size
    key = mix(mix(seed) ^ hash_name(name))
    factor = to_float(stddev)
    return [to_float(factor * standard_normal(key, i)) for i in range(size)]


def tensors(config):
    """Lists (name, shape, initial standard deviation) in layout order."""
    hidden = config["hidden_size"]
    intermediate = config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["heads"])
    query_width = head_dim * config["heads"]
    kv_width = head_dim * config["kv_heads"]
    stddev = config["init_stddev"]
    residual = stddev / math.sqrt(2.0 * config["layers"])
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden), stddev
    for block in range(config["layers"]):
        prefix = f"model.layers.{block}."
        if not config.get("post_norm"):
            yield prefix + "input_layernorm.weight", (hidden,), 0
        yield prefix + "self_attn.q_proj.weight", (query_width, hidden), stddev
        yield prefix + "self_attn.k_proj.weight", (kv_width, hidden), stddev
        yield prefix + "self_attn.v_proj.weight", (kv_width, hidden), stddev
        if config.get("qkv_bias"):
            yield prefix + "self_attn.q_proj.bias", (query_width,), 0
            yield prefix + "self_attn.k_proj.bias", (kv_width,), 0
            yield prefix + "self_attn.v_proj.bias", (kv_width,), 0
        if config.get("qk_norm"):
            across = config.get("qk_norm_across_heads")
            yield (prefix + "self_attn.q_norm.weight",
                   (query_width if across else head_dim,), 0)
            yield (prefix + "self_attn.k_norm.weight",
                   (kv_width if across else head_dim,), 0)
        yield (prefix + "self_attn.o_proj.weight", (hidden, query_width),
               residual)
        yield prefix + "post_attention_layernorm.weight", (hidden,), 0
        yield prefix + "mlp.gate_proj.weight", (intermediate, hidden), stddev
        yield prefix + "mlp.up_proj.weight", (intermediate, hidden), stddev
        yield prefix + "mlp.down_proj.weight", (hidden, intermediate), residual
        if config.get("post_norm"):
            yield prefix + "post_feedforward_layernorm.weight", (hidden,), 0
    yield "model.norm.weight", (hidden,), 0
    if not config["tie_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden), stddev
