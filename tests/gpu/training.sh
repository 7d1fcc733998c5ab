#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Compares training on a GPU with training on the CPU: the same small model from
# the same seed on the same data, alone; then two islands that share the GPU,
# with Streaming DiLoCo, ACCO and E3M0. Needs bash, awk and the three programs.

set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tests/gpu/training.sh [--device DEVICE] [--steps N] [--small] BIN TEXT...

BIN is the directory with causeway-coordinator and causeway-worker; the model
learns the bytes of TEXT. Exits with 0 if the losses of the two lone runs differ
by at most 1 % over the last half of the steps, and that of the two islands is
at most 5 % above the CPU's; with 77 if DEVICE (default: cuda:0) is not there.
--small takes a smaller model, for an emulated GPU.
USAGE
}

# shellcheck source=tests/gpu/island_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/island_runs.sh"

device=cuda:0
steps=200
model='layers: 4 hidden_size: 128 intermediate_size: 352 heads: 4 sequence_length: 128'
batch=16
small=false
read_options small "device steps" "$@"
if "${small}"; then
  model='layers: 2 hidden_size: 64 intermediate_size: 176 heads: 2 kv_heads: 1 sequence_length: 32'
  batch=8
fi
readonly device steps model batch
prepare_runs "${rest[@]}"

# config ISLANDS TRAINING SYNCHRONIZATION: prints the configuration of a run.
config() {
  cat <<CONFIG
name: "gpu-check"
seed: 1
model { ${model} }
data { tokenizer: BYTES shards: $1 }
training { total_steps: ${steps} batch_size: ${batch} micro_batch_size: $((batch / 2)) learning_rate: 2e-3 warmup_steps: 20 $2 }
synchronization { inner_steps_per_round: 20 $3 }
membership { min_islands: $1 max_islands: $1 }
CONFIG
}

# Prints the mean loss of the last half of a run's steps.
late_loss() {
  awk -v half=$((steps / 2)) '
    match($0, /step [0-9]+\/[0-9]+  loss [0-9.]+/) {
      split(substr($0, RSTART, RLENGTH), word, /[ \/]+/)
      if (word[2] > half) { sum += word[5]; ++count }
    }
    END { if (count) printf "%.4f", sum / count; else print "none" }
  ' "${work}/$1"-*.log
}

config 1 '' '' >"${work}/device.config"
train device "${device}" 1
cp "${work}/device.config" "${work}/cpu.config"
train cpu cpu 1
config 2 'inner_algorithm: ACCO' 'fragments: 3 overlap_steps: 4
  uplink_format: E3M0 downlink_format: E3M0' >"${work}/islands.config"
train islands "${device}" 2

cpu="$(late_loss cpu)"
alone="$(late_loss device)"
islands="$(late_loss islands)"
printf 'mean training loss of steps %d to %d: %s on the CPU, %s on %s, ' \
  $((steps / 2 + 1)) "${steps}" "${cpu}" "${alone}" "${device}"
printf '%s on two islands that share it\n' "${islands}"
awk -v cpu="${cpu}" -v alone="${alone}" -v islands="${islands}" 'BEGIN {
  difference = alone - cpu
  if (difference < 0) difference = -difference
  exit !(cpu > 0 && alone > 0 && islands > 0 && difference <= 0.01 * cpu &&
         islands <= 1.05 * cpu)
}'
