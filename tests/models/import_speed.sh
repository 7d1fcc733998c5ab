#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures how fast a large checkpoint becomes a run, and a run a checkpoint: a
# model in the layout of TinyLlama (1.1 billion parameters, bf16, random values)
# is imported, committed as version 0, and exported. Needs 25 GB of disk.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

usage() { echo "usage: tests/models/import_speed.sh [--keep]"; }
read_options keep "" "$@"
refuse_rest

# make_checkpoint DIR: writes config.json and model.safetensors. The values
# repeat a block of 1 MiB, in which each tensor begins at another place.
make_checkpoint() {
  python3 - "$1" <<'PYTHON'
import json, os, random, struct, sys

hidden, kv, inner, vocab = 2048, 256, 5632, 32000
shapes = {"model.embed_tokens.weight": [vocab, hidden],
          "model.norm.weight": [hidden], "lm_head.weight": [vocab, hidden]}
for layer in range(22):
    prefix = f"model.layers.{layer}."
    for name, shape in {
            "input_layernorm": [hidden], "post_attention_layernorm": [hidden],
            "self_attn.q_proj": [hidden, hidden],
            "self_attn.k_proj": [kv, hidden], "self_attn.v_proj": [kv, hidden],
            "self_attn.o_proj": [hidden, hidden],
            "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden],
            "mlp.down_proj": [hidden, inner]}.items():
        shapes[prefix + name + ".weight"] = shape
os.makedirs(sys.argv[1])
config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "hidden_act": "silu", "hidden_size": hidden,
          "intermediate_size": inner, "num_hidden_layers": 22,
          "num_attention_heads": 32, "num_key_value_heads": 4,
          "vocab_size": vocab, "max_position_embeddings": 2048,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
with open(sys.argv[1] + "/config.json", "w") as file:
    json.dump(config, file)
generator = random.Random(1)
block = b"".join(struct.pack("<f", generator.gauss(0, 0.02))[2:]
                 for _ in range(1 << 19))
header, end = {}, 0
for name, shape in shapes.items():
    size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
    header[name] = {"dtype": "BF16", "shape": shape,
                    "data_offsets": [end, end + size]}
    end += size
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1] + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for entry in header.values():
        begin = 2 * generator.randrange(len(block) // 2)
        left = entry["data_offsets"][1] - entry["data_offsets"][0]
        rotated = block[begin:] + block[:begin]
        while left > 0:
            left -= file.write(rotated[:left])
PYTHON
}

# same_tensors A B: compares the tensors of two safetensors files.
same_tensors() {
  python3 - "$@" <<'PYTHON'
import json, mmap, struct, sys

def tensors(path):
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: data[8 + size + entry["data_offsets"][0]:
                       8 + size + entry["data_offsets"][1]]
            for name, entry in header.items()}

first, second = (tensors(path) for path in sys.argv[1:])
equal = sum(first[name] == second.get(name) for name in first)
print(f"{equal} of {len(first)} tensors have the same bytes")
sys.exit(equal != len(first) or first.keys() != second.keys())
PYTHON
}

# timed NAME COMMAND...: prints seconds and the peak of resident memory.
timed() {
  local name="$1"
  shift
  /usr/bin/time -f "${name} %e s, %M KiB" -o "${work}/time" "$@" \
    >"${work}/${name}.log" 2>&1 || fail_of "${name}" "has failed"
  cat "${work}/time"
}

finish_on_exit
deploy/install_deps.sh build quickstart
cd "${ROOT}"
build_programs
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-import.XXXXXX")"
make_checkpoint "${work}/model"
timed disk dd if=/dev/zero of="${work}/zeros" bs=1M count=13200 conv=fsync
rm "${work}/zeros"
timed import "${causeway}" import "${work}/model" --out "${work}/run.textproto"
timed validate "${causeway}" validate "${work}/run.textproto"
begun="$(date +%s.%N)"
start coordinator "${coordinator}" --config "${work}/run.textproto" \
  --initial_parameters "${work}/model" --state_dir "${work}/state" \
  --listen 127.0.0.1:0 --port_file "${work}/port"
until [[ -s "${work}/port" ]]; do
  [[ -z "$(ended_process)" ]] || fail_of coordinator "did not start"
  sleep 0.1
done
awk -v begun="${begun}" -v ended="$(date +%s.%N)" \
  'BEGIN { printf "start %.1f s\n", ended - begun }'
awk '/VmHWM|RssAnon/' "/proc/${pids[0]}/status"
stop_processes
timed export "${causeway}" export "${work}/state" --out "${work}/out" \
  --dtype bf16 --like "${work}/model"
same_tensors "${work}/model/model.safetensors" "${work}"/out/model.safetensors
