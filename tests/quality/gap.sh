#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures how far the merged model is from data parallel training, at equal
# tokens and steps.

set -euo pipefail

# Data parallel is one island of two ranks, whose parameters the coordinator
# takes unchanged or, with SNOO (arXiv 2510.15830), makes outer steps with. All
# batches together have 16 sequences. causeway_k2 has the quickstart's settings;
# more islands do better with a larger outer rate in rounds of 5 steps, eight
# with more momentum in Muon, and each length of a round has its own overlap.
readonly ADAMW='training.optimizer: ADAMW training.learning_rate: 2e-3'
readonly ALONE='membership.min_islands: 1 data.shards: 1 training.batch_size: 16 training.micro_batch_size: 8'
# islands N: prints the fields of a run of N islands.
islands() {
  echo "membership.min_islands: $1 membership.max_islands: $1" \
    "data.shards: $1 training.batch_size: $((16 / $1))"
}
# outer RATE: prints the fields of an outer step without momentum.
outer() {
  echo "outer_optimizer.learning_rate: $1 outer_optimizer.momentum: 0"
}
FOUR="$(islands 4)"
readonly FOUR
EIGHT="$(islands 8)"
readonly EIGHT
# With H10 a step takes as many bytes as in the quickstart, with H40 a quarter of
# them, with H5 twice as many.
readonly FOUR_BITS="uplink_format: E3M0 downlink_format: E3M0 error_feedback: 0"
readonly H10="${FOUR_BITS} inner_steps_per_round: 10 overlap_steps: 2"
readonly H40="${FOUR_BITS} inner_steps_per_round: 40 overlap_steps: 5 outer_optimizer.momentum: 0.4"
readonly H5="${FOUR_BITS} inner_steps_per_round: 5 overlap_steps: 1"
readonly DILOCO="${H40} fragments: 1 overlap_steps: 0 uplink_format: FP32 downlink_format: FP32"
readonly AVERAGE="${DILOCO} outer_optimizer.algorithm: SGD outer_optimizer.learning_rate: 1"
# shellcheck disable=SC2034  # for loss_runs.sh
VARIANTS="
dp_adamw      ${ALONE} ${AVERAGE} ${ADAMW}
dp_muon       ${ALONE} ${AVERAGE}
snoo_adamw    ${ALONE} ${DILOCO} ${ADAMW}
snoo_muon     ${ALONE} ${DILOCO}
diloco_adamw  ${DILOCO} ${ADAMW}
diloco_muon   ${DILOCO}
causeway_k2
causeway_k4   ${FOUR} $(outer 1.2)
causeway_k8   ${EIGHT} $(outer 1.5) training.muon.momentum: 0.9
causeway_k16  $(islands 16) $(outer 1.5) training.muon.momentum: 0.9
adamw_k2      ${ADAMW}
k2_h10        ${H10}
k4_h10        ${FOUR} ${H10}
k8_h10        ${EIGHT} ${H10}
adamw_k2_h10  ${H10} ${ADAMW}
k2_h40        ${H40}
k4_h40        ${FOUR} ${H40}
k2_h5         ${H5}
k4_h5         ${FOUR} ${H5}
tau_half      ${FOUR} ${H10} overlap_steps: 5
"
# shellcheck disable=SC2034  # for loss_runs.sh
readonly CONFIG=deploy/quickstart.textproto
# shellcheck disable=SC2034  # for loss_runs.sh
readonly BASE=
# shellcheck disable=SC2034  # for loss_runs.sh
readonly FIGURES='megabytes:MB_sent'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly SUMMARY='Trains once for every way and seed, with 16 sequences in all steps, and prints
validation loss and megabytes sent: data parallel with AdamW and with Muon, and
with outer steps; DiLoCo with both; and the settings of the quickstart (streamed,
overlapped, 1.8 bits both ways every 5 steps) with two, four, eight and sixteen
islands, and with two and AdamW; the same with four bits, every 10 steps, 40 and
5, and with updates that come after half a round. About 90 seconds a run on two
cores. Begins with this argument:

  --tune               compare tuned runs, too: those in which data parallel and
                       the islands of the quickstart have the learning rate that
                       seed 1 does best with, in steps of sqrt 2'
# The variants that --tune tunes.
readonly TUNED=' dp_adamw dp_muon causeway_k2 causeway_k4 adamw_k2 '
rounds=30

# shellcheck source=tests/quality/loss_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/loss_runs.sh"

# figures RUN ISLANDS: prints the megabytes that all islands sent and received,
# or that two islands would in data parallel training at 16 bits.
figures() {
  local bytes=$((up + down))
  # The status counts the data parallel traffic of its one island.
  if (($2 == 1)); then bytes=$((2 * data_parallel)); fi
  awk -v bytes="${bytes}" 'BEGIN { printf "%.3f", bytes / 1e6 }'
}

# loss_at NAME POWER: trains with seed 1 and a learning rate POWER steps away
# from the variant's own. Sets `variant` and `loss`.
loss_at() {
  variant="$1"
  if (($2 != 0)); then
    local rate
    rate="$(configure "$1" 1 | awk -v power="$2" '
      /^training/ { inside = 1 }
      inside && /^ *learning_rate:/ { printf "%.3g", $2 * 2 ^ (power / 2); exit }')"
    variant="$1@${rate}"
    VARIANTS+="${variant} $(awk -v name="$1" '$1 == name { $1 = ""; print }' \
      <<<"${VARIANTS}") training.learning_rate: ${rate}"$'\n'
  fi
  measure "${variant}" 1
  loss="$(awk -v name="${variant}" '$1 == name && $2 == 1 { print $NF }' \
    "${results}")"
}

# tune NAME: chooses NAME at its best learning rate, too.
tune() {
  local best lowest way power
  loss_at "$1" 0
  best="${variant}" lowest="${loss}"
  for way in -1 1; do
    for ((power = way; ; power += way)); do
      loss_at "$1" "${power}"
      # A run that diverged has no number for a loss.
      if ! awk -v loss="${loss}" -v lowest="${lowest}" \
        'BEGIN { exit !(loss < lowest) }'; then break; fi
      best="${variant}" lowest="${loss}"
    done
    if [[ "${best}" != "$1" ]]; then break; fi
  done
  if [[ "${best}" != "$1" ]]; then chosen+=("${best}"); fi
  tuned+=("$1_tuned" "${best}")
}

tuned=()
tuning=false
if [[ "${1-}" == --tune ]]; then
  tuning=true
  shift
fi
prepare "$@"
if "${tuning}"; then
  for name in "${chosen[@]}"; do
    if [[ "${TUNED}" == *" ${name} "* ]]; then tune "${name}"; fi
  done
fi
compare
# The file has only losses; tuned runs have names of their own.
if [[ -n "${json}" ]]; then
  perl -MJSON::PP -0777 -e '
    my ($file, %tuned) = @ARGV;
    @ARGV = $file;
    my $runs = decode_json(<>);
    my %names = map { $_ => $_ } grep { !/@/ } keys %$runs;
    %names = (%names, %tuned);
    open my $out, ">", $file or die "$file: $!\n";
    print $out JSON::PP->new->canonical->pretty->encode(
      {map { $_ => $runs->{$names{$_}}{val_loss} } keys %names});' \
    "${json}" ${tuned[@]+"${tuned[@]}"}
fi
