# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Replaces parts of deploy/quickstart.sh, which sources it, for --pytorch.

# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154

readonly steps_per_round=5
more_targets=(//worker/embedding:libcauseway.so)

begin_islands() {
  local island token
  start_script create_run examples/pytorch/create_run.py --out "${work}/gpt" \
    --round "${steps_per_round}" ${rounds:+--steps "$((rounds * steps_per_round))"}
  wait "${pids[0]}" || fail_of create_run "failed"
  pids=()
  cp "${work}/gpt/run.textproto" "${work}/islands.textproto"
  start_coordinator islands "${work}/islands.textproto" auto \
    --initial_parameters "${work}/gpt/initial.safetensors" \
    --http_listen "${host}:0"
  for island in north south; do
    token="$(make_token "${island}")"
    CAUSEWAY_COORDINATOR="${address}" CAUSEWAY_JOIN_TOKEN="${token}" \
      CAUSEWAY_TLS="${work}/${island}.tls" start_script "island-${island}" \
      examples/pytorch/train_gpt_island.py --data "${data[@]}" --threads "${threads}"
  done
}

train_alone() {
  start_script alone examples/pytorch/train_gpt.py --data "${data[@]}" \
    --threads "$((2 * threads))" \
    ${rounds:+--steps "$((rounds * steps_per_round))"}
  wait "${pids[0]}" || fail_of alone "failed"
  pids=()
}

loss_of() {
  local log="${work}/$1.log"
  if [[ "$1" == islands ]]; then log="${work}/island-north.log"; fi
  sed -nE "s/^validation loss ([0-9.]+) at the $2\$/\1/p" "${log}"
}

show_sample() { :; }
