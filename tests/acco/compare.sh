#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Compares the inner algorithms on an island of two ranks: what they learn from
# the same tokens, how much communication they hide on a slow link, and how much
# a slow rank costs them. Real processes, TCP, real text.

set -euo pipefail

# shellcheck source=tests/comparison.sh
. "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

usage() {
  cat <<'USAGE'
usage: tests/acco/compare.sh [--json FILE] [--parts LIST] [--seeds LIST]
                             [--steps N] [--rate R] [--keep]

  --json FILE   write the figures as JSON
  --parts LIST  of convergence,overlap,heterogeneity (default: all of them)
  --seeds LIST  seeds of the convergence runs (default: 1,2,3)
  --steps N     inner steps of a convergence run (default: 1500)
  --rate R      peak learning rate of such a run (default: 2e-4)
  --keep        keep the working directory

Convergence gives the same losses on a machine of any speed and load: each rank
computes a fixed number of micro-batches. The times of the other parts mean
something only on a machine that has nothing else to do. Overlap needs root, for
two network namespaces with a shaped link; without root that part is skipped
with a message.
USAGE
}

parts=convergence,overlap,heterogeneity
seeds=1,2,3
steps=1500
rate=2e-4
parse_flags "json parts seeds steps rate" "$@"
cd "${ROOT}"

# The batch is four micro-batches: two for each rank, one for each half of a
# step of ACCO.
readonly sequence_length=128 micro_batch=4 batch=16

# configure FILE ALGORITHM SEED STEPS FIXED: writes the configuration of one
# island, whose parameters the outer step takes unchanged; FIXED is
# training.fixed_micro_batches.
configure() {
  cat >"$1" <<CONFIG
name: "compare"
seed: $3
model {
  layers: 4
  hidden_size: 128
  intermediate_size: 352
  heads: 4
  sequence_length: ${sequence_length}
}
training {
  total_steps: $4
  batch_size: ${batch}
  micro_batch_size: ${micro_batch}
  learning_rate: ${rate}
  warmup_steps: $(($4 / 10))
  inner_algorithm: $2
  fixed_micro_batches: $5
}
outer_optimizer { algorithm: SGD learning_rate: 1 }
synchronization {
  inner_steps_per_round: $4
  uplink_format: FP32
  downlink_format: FP32
}
membership { min_islands: 1 }
CONFIG
}

# start_rank NAME RANK HOST COMMAND...: starts a rank, with COMMAND before the
# worker; rank 0 is at leader_host.
leader_host=
start_rank() {
  local name="$1" rank="$2" host="$3" flags=()
  shift 3
  if ((rank == 0)); then
    flags=(--coordinator "${address}" --island compare --log_seconds 0)
  fi
  start "${name}-rank${rank}" "$@" "${worker}" "${flags[@]}" --threads 1 \
    --data "${data[0]}" --island_size 2 --island_rank "${rank}" \
    --island_leader "${leader_host}:7177" --rank_host "${host}" \
    --insecure_ranks
}

# run_island NAME ALGORITHM STEPS: runs both ranks on this host, the second one
# slowed down.
run_island() {
  local name="$1"
  configure "${work}/${name}.textproto" "$2" 1 "$3" false
  start_coordinator "${name}" "${work}/${name}.textproto"
  leader_host=127.0.0.1
  start_rank "${name}" 0 127.0.0.1
  start_rank "${name}" 1 127.0.0.1
  slow_down "${pids[-1]}"
  await_islands
  stop_processes
}

# run_threads NAME ALGORITHM SEED: runs both ranks in one process, which gives
# the same bits as two.
run_threads() {
  local name="$1"
  configure "${work}/${name}.textproto" "$2" "$3" "${steps}" true
  start_coordinator "${name}" "${work}/${name}.textproto"
  start "${name}-rank0" "${worker}" --coordinator "${address}" \
    --island compare --ranks 2 --threads 2 --log_seconds 0 --data "${data[0]}"
  await_islands
  stop_processes
}

# measure NAME: prints, from rank 0's lines of progress without the first five:
# seconds per step, tokens per second, seconds of communication and of its
# exposed part per step, and tokens in all.
measure() {
  perl -e '
    my ($sequences, $length) = @ARGV;
    my ($first, $last, $steps, $tokens, $all, $busy, $bare) = (0) x 7;
    while (<STDIN>) {
      next unless m{^I\d+ (\d+):(\d+):([\d.]+) .*step (\d+)/};
      my ($now, $step) = (3600 * $1 + 60 * $2 + $3, $4);
      my ($counts) = /micro-batches ([\d+]+)/;
      my $count = 0;
      $count += $_ for split /\+/, $counts;
      $all += $count;
      if ($step <= 5) { $first = $now; next }
      ($last, $steps, $tokens) = ($now, $steps + 1, $tokens + $count);
      if (/communication ([\d.]+) s, ([\d.]+) % hidden/) {
        $busy += $1;
        $bare += $1 * (1 - $2 / 100);
      }
    }
    my $seconds = $last - $first;
    $seconds += 86400 if $seconds < 0;
    my $unit = $sequences * $length;
    printf "%.6f %.1f %.6f %.6f %d\n", $seconds / $steps,
      $tokens * $unit / $seconds, $busy / $steps, $bare / $steps, $all * $unit;
  ' "${micro_batch}" "${sequence_length}" <"${work}/$1-rank0.log"
}

# ---- Convergence: as many steps with the same micro-batches.

convergence() {
  local algorithm seed name losses tokens
  for algorithm in DDP ACCO; do
    losses=
    for seed in ${seeds//,/ }; do
      name="seed-${seed}-${algorithm,,}"
      run_threads "${name}" "${algorithm}" "${seed}"
      read -r _ _ _ _ tokens < <(measure "${name}")
      losses+="${losses:+, }$(evaluate "${name}")"
      say "convergence, ${algorithm}, seed ${seed}:" \
        "  ${tokens} tokens, validation loss ${losses##*, }"
    done
    figure "val_loss_${algorithm,,}" "[${losses}]"
  done
}

# ---- Overlap: a link of a rate that makes the communication of a step 0.5, 1
# and 2 times as long as its computation.

# run_apart NAME ALGORITHM STEPS: runs coordinator and rank 0 on one side of the
# link, rank 1 on the other.
run_apart() {
  configure "${work}/$1.textproto" "$2" 1 "$3" false
  start "$1-coordinator" ip netns exec "${zone}-0" "${coordinator}" \
    --config "${work}/$1.textproto" --state_dir "${work}/$1" \
    --listen 127.0.0.1:7070
  address=127.0.0.1:7070
  leader_host=10.177.0.1
  start_rank "$1" 0 10.177.0.1 ip netns exec "${zone}-0"
  start_rank "$1" 1 10.177.0.2 ip netns exec "${zone}-1"
  await_islands
  stop_processes
}

overlap() {
  add_network || return 0
  local ratio step unhindered bare busy ddp bytes limit
  local hidden=() over=() speedup=()
  for ratio in 0.5 1 2; do
    # Measures computing alone, as far as possible: with ACCO no rank waits. It
    # runs right before the runs that it is compared with, because the pace of
    # machines changes.
    run_apart "free-${ratio}-acco" ACCO 25
    read -r _ unhindered _ < <(measure "free-${ratio}-acco")
    run_apart "free-${ratio}-ddp" DDP 25
    read -r step _ < <(measure "free-${ratio}-ddp")
    bytes="$(exchanged_bytes "free-${ratio}-ddp")"
    shape "$(calculate 'int(8 * bytes / (ratio * step))' "bytes=${bytes}" \
      "ratio=${ratio}" "step=${step}")"
    run_apart "link-${ratio}-ddp" DDP 25
    read -r _ ddp _ < <(measure "link-${ratio}-ddp")
    run_apart "link-${ratio}-acco" ACCO 25
    local acco_step acco
    read -r acco_step acco busy bare _ < <(measure "link-${ratio}-acco")
    unshape
    hidden+=("$(calculate '1 - bare / busy' "bare=${bare}" "busy=${busy}")")
    # ACCO communicates twice in a step. Its step can be no shorter than its
    # communication or its computing.
    limit="$(calculate 'c > k ? c : k' \
      "k=$(calculate '1 / r' "r=${unhindered}")" \
      "c=$(calculate '2 * ratio * step / (speed * time)' "ratio=${ratio}" \
        "step=${step}" "speed=${acco}" "time=${acco_step}")")"
    over+=("$(calculate '1 / speed / limit' "speed=${acco}" \
      "limit=${limit}")")
    speedup+=("$(calculate 'a / d' "a=${acco}" "d=${ddp}")")
    say "overlap, communication ${ratio} of computing:" \
      "  ACCO ${acco} tokens/s, ${hidden[-1]} hidden" \
      "  ACCO's time per token ${over[-1]} of the limit" \
      "  DDP ${ddp} tokens/s"
  done
  local IFS=,
  figure hidden_share "[${hidden[*]}]"
  figure time_per_token_over_limit "[${over[*]}]"
  figure overlap_speedup "[${speedup[*]}]"
}

# exchanged_bytes NAME: prints the bytes that each rank sends in a step of DDP:
# half of the gradients, and half of the parameters.
exchanged_bytes() {
  local parameters
  parameters="$(grep -oE '[0-9]+ parameters' "${work}/$1-rank0.log" |
    head -n 1 | cut -d ' ' -f 1)"
  echo $((4 * parameters))
}

# ---- Heterogeneity: one rank runs a quarter of the time.

heterogeneity() {
  local ddp acco
  run_island slow-ddp DDP 25
  read -r _ ddp _ < <(measure slow-ddp)
  run_island slow-acco ACCO 25
  read -r _ acco _ < <(measure slow-acco)
  figure heterogeneous_speedup "$(calculate 'a / d' "a=${acco}" "d=${ddp}")"
  say "heterogeneity: ACCO ${acco} tokens/s, DDP ${ddp}"
  grep -ohE 'rank [0-9]+ is slow.*|the link .* is slow.*' \
    "${work}/slow-ddp-rank0.log" | head -n 1 || true
}

# ---- Main

work="$(mktemp -d -t causeway-acco-XXXXXX)"
finish_on_exit
build_programs
use_perl_manual
run_parts convergence overlap heterogeneity
