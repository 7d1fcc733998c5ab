#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures the most memory a coordinator takes: trains a model of 10.8 million
# parameters on two islands for a few rounds and watches the coordinator's
# anonymous memory. Mapped files do not count, because the system can drop them.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

usage() { echo "usage: tests/quality/coordinator_memory.sh [--keep]"; }
read_options keep "" "$@"
refuse_rest

# Each case is the format of both ways and the number of fragments.
readonly CASES='FP32 1
BF16 1
E3M0 1
E3M0 4'

# configure FORMAT FRAGMENTS: prints the configuration of a run.
configure() {
  cat <<TEXTPROTO
name: "memory"
seed: 1
model {
  layers: 6
  hidden_size: 384
  intermediate_size: 1024
  heads: 6
  sequence_length: 256
  tie_embeddings: false
}
data { tokenizer: BYTES shards: 2 }
training { total_steps: 12 batch_size: 1 learning_rate: 1e-3 }
outer_optimizer { algorithm: NESTEROV learning_rate: 0.7 momentum: 0.9 }
synchronization {
  inner_steps_per_round: 4
  fragments: $2
  uplink_format: $1
  downlink_format: $1
  entropy_coding: false
}
membership { min_islands: 2 max_islands: 2 grace_seconds: 60 lease_seconds: 30 }
TEXTPROTO
}

# watch_memory PID FILE: keeps the process's peak of anonymous memory in kB in
# FILE, until the process ends.
watch_memory() {
  local key value most=0
  while kill -0 "$1" 2>/dev/null; do
    while read -r key value _; do
      if [[ "${key}" == RssAnon: ]] && ((value > most)); then
        most="${value}"
        echo "${most}" >"$2"
      fi
    done <"/proc/$1/status"
    sleep 0.005
  done 2>/dev/null
}

# measure FORMAT FRAGMENTS: prints a line of the table.
measure() {
  local run="$1-$2" island
  configure "$1" "$2" >"${work}/${run}.textproto"
  start_coordinator "${run}" "${work}/${run}.textproto"
  watch_memory "${pids[0]}" "${work}/${run}.kb" &
  for island in north south; do
    start "${run}-${island}" "${worker}" --coordinator "${address}" \
      --island "${island}" --threads 1 --data "${data[0]}"
  done
  await_islands
  read_status || fail_of "${run}-coordinator" "does not answer"
  stop_processes
  awk -v kb="$(<"${work}/${run}.kb")" -v parameters="${parameters}" \
    -v format="$1" -v fragments="$2" 'BEGIN {
      printf "%-6s %9d %8.1f %20.2f\n", format, fragments, kb * 1024 / 1e6,
        kb * 1024 / parameters
    }'
}

finish_on_exit
deploy/install_deps.sh build quickstart
say "" "Building..."
cd "${ROOT}"
build_programs
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-memory.XXXXXX")"
use_perl_manual
say "" "format fragments  peak MB  bytes per parameter"
while read -r format fragments; do
  measure "${format}" "${fragments}"
done <<<"${CASES}"
