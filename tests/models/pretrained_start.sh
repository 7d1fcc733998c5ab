#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures how a run continues from a pretrained model: one island trains the
# quickstart's model, which is exported; two islands begin with it. Prints the
# validation loss of the export, and of the merged model after each round that
# an evaluation catches.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

usage() { echo "usage: tests/models/pretrained_start.sh [--keep]"; }
read_options keep "" "$@"
refuse_rest

readonly PRETRAINING_STEPS=600
readonly ROUNDS=10

# configure NAME ISLANDS STEPS WARMUP OUTER: prints the configuration of a run
# with the learning rate at which pretraining ends.
configure() {
  cat <<TEXTPROTO
name: "$1"
model {
  layers: 4
  hidden_size: 160
  intermediate_size: 416
  heads: 5
  sequence_length: 128
  tie_embeddings: true
}
data { shards: 2 }
training {
  total_steps: $3
  batch_size: 8
  learning_rate: 2e-3
  warmup_steps: $4
  schedule: CONSTANT
}
outer_optimizer { $5 }
synchronization { inner_steps_per_round: 40 }
membership { min_islands: $2 max_islands: $2 grace_seconds: 60 lease_seconds: 30 }
TEXTPROTO
}

# islands RUN NAME...: starts islands of one thread.
islands() {
  local run="$1" island
  shift
  for island in "$@"; do
    start "${run}-${island}" "${worker}" --coordinator "${address}" \
      --island "${island}" --threads 1 --data "${data[0]}"
  done
}

# evaluate STATE: prints the version and the loss.
evaluate() {
  "${causeway}" evaluate "${work}/$1" --text "${data[0]}" --threads 1 \
    --max_sequences 500 --json 2>"${work}/evaluate.log" |
    perl -MJSON::PP -e 'my $got = decode_json(<STDIN>);
      printf "%d %.4f\n", $got->{versions}[0], $got->{loss}'
}

finish_on_exit
deploy/install_deps.sh build quickstart
say "" "Building..."
cd "${ROOT}"
build_programs
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-pretrained.XXXXXX")"
use_perl_manual

# One island whose parameters become the outer ones is plain training.
configure pretraining 1 "${PRETRAINING_STEPS}" 60 \
  'algorithm: SGD learning_rate: 1' >"${work}/pretraining.textproto"
start_coordinator pretraining "${work}/pretraining.textproto"
islands pretraining alone
await_islands
stop_processes
read -r _ loss < <(evaluate pretraining)
say "after ${PRETRAINING_STEPS} steps on one island: ${loss}"
"${causeway}" export "${work}/pretraining" --out "${work}/model" >/dev/null

configure goes-on 2 "$((40 * ROUNDS))" 0 \
  'algorithm: NESTEROV learning_rate: 0.8 momentum: 0.4' \
  >"${work}/goes-on.textproto"
start_coordinator goes-on "${work}/goes-on.textproto" "" \
  --initial_parameters "${work}/model"
say "two islands, by round:" "$(evaluate goes-on)"
islands goes-on north south
last=0
while ((last < ROUNDS)); do
  if [[ -n "$(ended_process)" ]]; then await_islands; fi
  read -r version loss < <(evaluate goes-on)
  if ((version == last)); then continue; fi
  last="${version}"
  say "${version} ${loss}"
done
