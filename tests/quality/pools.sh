#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures whether it matters when the islands train: pools of islands grow and
# shrink during the run, as in figure 7 of the DiLoCo paper (arXiv 2311.08105).
# Islands join the run under way, and are drained.

set -euo pipefail

# The number of islands in each quarter of the run. Doubling and halving have
# the same sum, and so have ramp_up and ramp_down.
readonly POOLS='
constant_4  4 4 4 4
doubling    2 2 4 4
halving     4 4 2 2
ramp_up     1 2 3 4
ramp_down   4 3 2 1
constant_2  2 2 2 2
constant_1  1 1 1 1
'
VARIANTS="$(awk 'NF { print $1, "membership.min_islands: " $2 }' <<<"${POOLS}")"
# shellcheck disable=SC2034  # for loss_runs.sh
readonly VARIANTS
# shellcheck disable=SC2034  # for loss_runs.sh
readonly BASE='fragments: 1 overlap_steps: 0 uplink_format: FP32 downlink_format: FP32 membership.max_islands: 5 data.shards: 4'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly FIGURES='million_tokens:M_tokens'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly SUMMARY='Trains once for every pool of islands and seed, and prints how many million
tokens were merged and the validation loss. About 80 seconds on two cores for a run
of the largest pool.'

# shellcheck source=tests/quality/loss_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/loss_runs.sh"

# resize_pool RUN COUNT: starts islands, or drains the last ones, until there
# are COUNT; `pool_size` is their number.
resize_pool() {
  while ((pool_size < $2)); do
    pool_size=$((pool_size + 1))
    start "$1-island-${pool_size}" "${worker}" --coordinator "${address}" \
      --island "island-${pool_size}" --threads 1 --data "${data[0]}"
  done
  while ((pool_size > $2)); do
    "${causeway}" drain "island-${pool_size}" --coordinator "${address}" \
      >>"${work}/drain.log" 2>&1 || fail "cannot drain island-${pool_size}"
    pool_size=$((pool_size - 1))
  done
}

# train NAME SEED: prints millions of merged tokens and the validation loss.
train() {
  local run="$1-$2" pool_size=0 quarter=0 pool
  read -ra pool <<<"$(awk -v name="$1" '$1 == name { $1 = ""; print }' \
    <<<"${POOLS}")"
  configure "$1" "$2" >"${work}/${run}.textproto"
  start_coordinator "${run}" "${work}/${run}.textproto"
  resize_pool "${run}" "${pool[0]}"
  run_state=
  until [[ "${run_state}" == FINISHED ]]; do
    sleep 0.5
    kill -0 "${pids[0]}" || fail_of "${run}-coordinator" "has ended"
    # A busy machine may answer late.
    read_status || continue
    if ((quarter < 3 && 4 * step >= (quarter + 1) * total_steps)); then
      quarter=$((quarter + 1))
      resize_pool "${run}" "${pool[quarter]}"
    fi
  done
  await_islands
  read_status || fail_of "${run}-coordinator" "does not answer"
  stop_processes
  awk -v tokens="${tokens}" -v loss="$(evaluate "${run}")" \
    'BEGIN { printf "%.4f %.6f\n", tokens / 1e6, loss }'
  rm -rf "${work:?}/${run}"
}

compare_losses "$@"
