#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures what streaming synchronization costs training on a GPU: the time of
# an inner step of an island that exchanges fragments, against that of an island
# that exchanges nothing until its end. Needs bash, awk and the programs.

set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tests/gpu/streaming.sh [--device DEVICE] [--pairs N] [--small]
                              [--json FILE] BIN TEXT...

BIN is the directory with causeway-coordinator and causeway-worker; a model with
85 million parameters learns the bytes of TEXT. Runs with exchanges (Streaming
DiLoCo in E3M0, four fragments in 40 steps, 10 steps of overlap) and without
alternate; prints how much longer the median step with exchanges is. Exits
with 77 if DEVICE (default: cuda:0) is not there.

  --pairs N    runs of each kind (default: 3)
  --small      a model with 0.9 million parameters, to try the script on a CPU
  --json FILE  write the figures to FILE
USAGE
}

# shellcheck source=tests/gpu/island_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/island_runs.sh"

device=cuda:0
pairs=3
json=
model='layers: 12 hidden_size: 768 intermediate_size: 2048 heads: 12 sequence_length: 1024'
batch=16
small=false
read_options small "device pairs json" "$@"
if "${small}"; then
  model='layers: 4 hidden_size: 128 intermediate_size: 352 heads: 4 sequence_length: 64'
  batch=4
fi
readonly device pairs json model batch
readonly STEPS=240
prepare_runs "${rest[@]}"

# config SYNCHRONIZATION: prints the configuration of a run.
config() {
  cat <<CONFIG
name: "gpu-streaming"
seed: 1
model { ${model} }
data { tokenizer: BYTES }
training { total_steps: ${STEPS} batch_size: ${batch} learning_rate: 4e-4 warmup_steps: 20 }
synchronization { $1 }
membership { min_islands: 1 max_islands: 1 }
CONFIG
}

# step_milliseconds NAME: prints the mean time of a run's steps, from the second
# round on and without the last ones.
step_milliseconds() {
  awk -v first=80 -v last=$((STEPS - 10)) '
    match($0, /step [0-9]+\//) {
      step = substr($0, RSTART + 5, RLENGTH - 6) + 0
      # Lines begin with the date and the time of day.
      split($2, clock, ":")
      seconds = clock[1] * 3600 + clock[2] * 60 + clock[3]
      if (step == first) begin = seconds
      if (step == last) end = seconds
    }
    END {
      if (end < begin) end += 86400
      printf "%.4f", 1e3 * (end - begin) / (last - first)
    }
  ' "${work}/$1-0.log"
}

median() {
  printf '%s\n' "$@" | sort -g | awk '
    { value[NR] = $1 }
    END { printf "%.4f", (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2 }'
}

with=()
without=()
slowdowns=()
for ((pair = 0; pair < pairs; ++pair)); do
  config "inner_steps_per_round: ${STEPS}" >"${work}/without-${pair}.config"
  train "without-${pair}" "${device}" 1
  config 'inner_steps_per_round: 40 fragments: 4 overlap_steps: 10
    uplink_format: E3M0 downlink_format: E3M0' >"${work}/with-${pair}.config"
  train "with-${pair}" "${device}" 1
  without+=("$(step_milliseconds "without-${pair}")")
  with+=("$(step_milliseconds "with-${pair}")")
  slowdowns+=("$(awk -v a="${with[-1]}" -v b="${without[-1]}" \
    'BEGIN { printf "%.2f", 100 * (a / b - 1) }')")
done
printf 'an inner step of %s takes %.1f ms alone and %.1f ms with exchanges: ' \
  "${device}" "$(median "${without[@]}")" "$(median "${with[@]}")"
printf '%.2f %% longer (pairs: %s)\n' "$(median "${slowdowns[@]}")" "${slowdowns[*]}"
if [[ -n "${json}" ]]; then
  printf '{"step_milliseconds_alone": %s, "step_milliseconds": %s, "percent_longer": %s}\n' \
    "$(median "${without[@]}")" "$(median "${with[@]}")" \
    "$(median "${slowdowns[@]}")" >"${json}"
fi
