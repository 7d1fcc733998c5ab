# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints in Hugging Face's layout, and what PyTorch makes of them.

  checkpoints.py make DIR            writes DIR/NAME for each family, and
                                     DIR/tokens.bin; prints NAME DTYPE LENGTH
  checkpoints.py same A B            prints the tensors of A, and how many of
                                     them have the same bytes in B
  checkpoints.py loss MODEL TOKENS LENGTH
                                     prints the loss on the validation split

It shares no code with the C++ sources: config.json follows the libraries'
documentation, safetensors and the model (in double precision) are those of
tests/reference, and the split follows worker/data/split.h.
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).parent.parent / "reference"))
# pylint: disable=wrong-import-position
from llama import logits_of
from tensor_file import read_tensors, write_tensors

TOKENS = 12000
VOCABULARY = 83
VALIDATION_FRACTION = 0.05
METADATA = {"format": "pt"}

SMALL = {"hidden_act": "silu", "hidden_size": 24, "intermediate_size": 40,
         "max_position_embeddings": 64, "num_attention_heads": 4,
         "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "tie_word_embeddings": False,
         "vocab_size": VOCABULARY, "torch_dtype": "bfloat16"}
LLAMA = dict(SMALL, model_type="llama", architectures=["LlamaForCausalLM"],
             attention_bias=False, mlp_bias=False)
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
QWEN2 = dict(SMALL, model_type="qwen2", architectures=["Qwen2ForCausalLM"],
             rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=16,
             use_sliding_window=False, max_window_layers=2)
QWEN3 = dict(QWEN2, model_type="qwen3", architectures=["Qwen3ForCausalLM"],
             attention_bias=False, head_dim=16, sliding_window=None)

# By name: config.json, and into how many files the tensors go.
FAMILIES = {
    "llama-2": (dict(LLAMA, num_key_value_heads=4, torch_dtype="float16"), 1),
    "tinyllama": (dict(LLAMA, num_attention_heads=6, hidden_size=36), 1),
    "smollm2": (dict(LLAMA, num_attention_heads=3, num_key_value_heads=1,
                     rope_theta=100000.0, tie_word_embeddings=True), 1),
    "llama-3.1": (dict(LLAMA, rope_theta=5000.0, rope_scaling=LLAMA3_ROPE), 2),
    # The spelling of newer libraries.
    "llama-3.2": (dict({k: v for k, v in LLAMA.items() if k != "rope_theta"},
                       rope_parameters=dict(LLAMA3_ROPE, rope_theta=5000.0),
                       tie_word_embeddings=True), 1),
    "mistral": (dict(SMALL, model_type="mistral", sliding_window=32,
                     architectures=["MistralForCausalLM"]), 1),
    "mistral-nemo": (dict(SMALL, model_type="mistral", head_dim=8,
                          architectures=["MistralForCausalLM"]), 1),
    "qwen2.5": (dict(QWEN2, tie_word_embeddings=True), 1),
    "qwen2.5-untied": (QWEN2, 2),
    "qwen3": (dict(QWEN3, tie_word_embeddings=True), 1),
    "qwen3-untied": (dict(QWEN3, torch_dtype="float32"), 3),
    "smollm3": (dict(LLAMA, model_type="smollm3", num_hidden_layers=4,
                     architectures=["SmolLM3ForCausalLM"],
                     tie_word_embeddings=True), 1),
    "olmo2": (dict(SMALL, model_type="olmo2", attention_bias=False,
                   architectures=["Olmo2ForCausalLM"]), 2),
}


def shapes_of(config):
    """Lists (name, shape) as the libraries name the model's tensors."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    dim = config.get("head_dim", hidden // heads)
    widths = {"q": dim * heads}
    widths["k"] = widths["v"] = dim * config["num_key_value_heads"]
    inner = config["intermediate_size"]
    is_olmo = config["model_type"] == "olmo2"
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        for kind, width in widths.items():
            name = f"{block}self_attn.{kind}"
            yield name + "_proj.weight", (width, hidden)
            if config["model_type"] == "qwen2":
                yield name + "_proj.bias", (width,)
            if config["model_type"] == "qwen3" and kind != "v":
                yield name + "_norm.weight", (dim,)
            if is_olmo and kind != "v":
                yield name + "_norm.weight", (width,)
        yield block + "self_attn.o_proj.weight", (hidden, widths["q"])
        yield block + "mlp.gate_proj.weight", (inner, hidden)
        yield block + "mlp.up_proj.weight", (inner, hidden)
        yield block + "mlp.down_proj.weight", (hidden, inner)
        extra = "post_feedforward" if is_olmo else "input"
        yield f"{block}{extra}_layernorm.weight", (hidden,)
        yield block + "post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (VOCABULARY, hidden)


def read_model(directory):
    """Maps each name to its tensor."""
    tensors = {}
    for path in directory.glob("*.safetensors"):
        tensors.update(read_tensors(path)[0])
    return tensors


def write_model(directory, config, files):
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    tensors = {}
    for name, shape in shapes_of(config):
        values = torch.randn(shape) * 0.3
        if len(shape) == 1:
            values += 0 if name.endswith("bias") else 1
        tensors[name] = values.to(getattr(torch, config["torch_dtype"]))
    if files == 1:
        write_tensors(directory / "model.safetensors", tensors, METADATA)
        return
    names, weight_map = list(tensors), {}
    for number in range(files):
        file = f"model-{number + 1:05}-of-{files:05}.safetensors"
        part = names[number::files]
        write_tensors(directory / file, {n: tensors[n] for n in part}, METADATA)
        weight_map.update(dict.fromkeys(part, file))
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}))


def make(directory):
    torch.manual_seed(1)
    for name, (config, files) in FAMILIES.items():
        write_model(directory / name, config, files)
        # No sequence is longer than a sliding window that counts.
        length = config["max_position_embeddings"]
        if config["model_type"] == "mistral":
            length = config.get("sliding_window", length)
        print(name, config["torch_dtype"], length)
    tokens = torch.randint(0, VOCABULARY, (TOKENS,), dtype=torch.int16)
    # Every other token follows from the one before, so that there is something
    # to learn.
    tokens[1::2] = (tokens[::2] * 7 + 3) % VOCABULARY
    (directory / "tokens.bin").write_bytes(tokens.numpy().tobytes())


def same(directory, other):
    def contents(model):
        return {name: (tensor.dtype, tensor.shape,
                       tensor.flatten().view(torch.uint8).numpy().tobytes())
                for name, tensor in read_model(model).items()}

    ours, theirs = contents(directory), contents(other)
    print(len(ours), sum(theirs.get(n) == ours[n] for n in ours)
          - len(theirs.keys() - ours.keys()))


def validation_windows(tokens, length):
    for windows in range(16, 0, -1):
        size = windows * length + 1
        blocks = len(tokens) // size
        chosen = max(1, round(blocks * VALIDATION_FRACTION))
        if blocks * VALIDATION_FRACTION >= 1 and blocks - chosen >= 8:
            break
    for block in range(blocks):
        before = (block * chosen + blocks // 2) // blocks
        if ((block + 1) * chosen + blocks // 2) // blocks == before:
            continue
        for window in range(windows):
            begin = block * size + window * length
            yield tokens[begin:begin + length + 1]


def loss(directory, tokens_path, length):
    text = json.loads((directory / "config.json").read_text())
    rope = (text.get("rope_parameters") or text.get("rope_scaling")
            or {"rope_type": "default"})
    config = {"layers": text["num_hidden_layers"],
              "heads": text["num_attention_heads"],
              "kv_heads": text["num_key_value_heads"],
              "norm_epsilon": text["rms_norm_eps"],
              "rope_theta": rope.get("rope_theta", text.get("rope_theta"))}
    if text["model_type"] == "smollm3":
        config["no_rope_interval"] = text.get("no_rope_layer_interval", 4)
    if "head_dim" in text:
        config["head_dim"] = text["head_dim"]
    if rope["rope_type"] == "llama3":
        config["rope_factor"] = rope["factor"]
        config["rope_original_length"] = rope[
            "original_max_position_embeddings"]
    weights = {name: tensor.double()
               for name, tensor in read_model(directory).items()}
    tokens = torch.frombuffer(bytearray(tokens_path.read_bytes()),
                              dtype=torch.int16).long()
    windows = torch.stack(list(validation_windows(tokens, length)))
    logits = logits_of(windows[:, :-1], weights, config)
    targets = windows[:, 1:].flatten()
    print(F.cross_entropy(logits.flatten(0, 1), targets).item())


def main():
    command, first, *rest = sys.argv[1:]
    first = pathlib.Path(first)
    torch.set_num_threads(1)
    if command == "make":
        make(first)
    elif command == "same":
        same(first, pathlib.Path(rest[0]))
    elif command == "loss":
        loss(first, pathlib.Path(rest[0]), int(rest[1]))


if __name__ == "__main__":
    main()
