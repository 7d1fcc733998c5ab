#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures islands of PyTorch: what they add to a step, and what they learn.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"

usage() {
  cat <<'USAGE'
usage: tests/pytorch/benchmark.sh [--json FILE] [--parts LIST] [--seeds LIST]
                                  [--steps N] [--keep]

  --json FILE   write the figures as JSON
  --parts LIST  of cost,loss,links (default: all of them)
  --seeds LIST  seeds of the loss runs (default: 1,2)
  --steps N     steps of a loss run (default: 1200)
  --keep        keep the working directory

Writes after_step_idle_microseconds, send_over_copy and apply_over_copy (cost),
and val_loss_two_islands, val_loss_one_island and val_loss_ddp (loss; a list with
a value for each seed), and utilization by link (links). Costs and utilization
mean something only on a machine that has nothing else to do; the losses do not
depend on it. Links needs root, for the network namespaces of tests/wan.
USAGE
}

json=
parts=cost,loss,links
seeds=1,2
steps=1200
while (($#)); do
  case "$1" in
    --json | --parts | --seeds | --steps)
      if (($# < 2)); then
        echo "benchmark: $1 needs a value" >&2
        exit 2
      fi
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    --keep) keep=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      echo "benchmark: unknown argument '$1'" >&2
      exit 2
      ;;
  esac
  shift
done
if [[ -n "${json}" ]]; then json="$(realpath "${json}")"; fi
cd "${ROOT}"

figures=()

# start_script NAME SCRIPT FLAG...: starts a Python program.
start_script() {
  local name="$1"
  shift
  start "${name}" env OMP_WAIT_POLICY=passive \
    CAUSEWAY_LIBRARY="${coordinator%/server/*}/worker/embedding/libcauseway.so" \
    python/run_test.sh "$@"
}

# Waits for all processes, for the coordinator last: it ends with the run.
await_scripts() {
  local index pid
  for ((index = ${#pids[@]} - 1; index >= 0; --index)); do
    pid="${pids[index]}"
    wait "${pid}" || fail_of "${names[${pid}]}" "failed"
  done
  pids=()
}

# begin_run NAME: starts a coordinator with the files that a script has written
# to work/NAME.files.
begin_run() {
  await_scripts
  start_coordinator "$1" "${work}/$1.files/run.textproto" "" \
    --initial_parameters "${work}/$1.files/initial.safetensors" \
    --exit_when_finished
}

cost() {
  start_script create tests/pytorch/step_cost.py --create_run "${work}/cost.files"
  begin_run cost
  start_script cost-island tests/pytorch/step_cost.py --coordinator "${address}"
  await_scripts
  local line
  line="$(grep '^{' "${work}/cost-island.log")"
  say "cost: ${line}"
  figures+=("${line:1:-1}")
}

# train NAME SEED SCRIPT FLAG...: starts a loop of examples/pytorch.
train() {
  local name="$1" seed="$2" script="$3"
  shift 3
  start_script "${name}" "examples/pytorch/${script}" --data "${data[@]}" \
    --seed "${seed}" --steps "${steps}" "$@"
}

loss_of() {
  sed -nE 's/^validation loss ([0-9.]+) at the end$/\1/p' "${work}/$1.log"
}

loss() {
  local seed islands='' alone='' ddp='' rank
  use_perl_manual
  for seed in ${seeds//,/ }; do
    start_script "create-${seed}" examples/pytorch/create_run.py \
      --out "${work}/two-${seed}.files" --steps "${steps}" --seed "${seed}"
    begin_run "two-${seed}"
    for rank in 0 1; do
      CAUSEWAY_COORDINATOR="${address}" CAUSEWAY_ISLAND="island-${rank}" \
        train "two-${seed}-${rank}" "${seed}" train_gpt_island.py
    done
    await_scripts
    train "alone-${seed}" "${seed}" train_gpt.py
    await_scripts
    # As many tokens as both islands: each rank has an island's batch.
    for rank in 0 1; do
      RANK="${rank}" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29577 \
        train "ddp-${seed}-${rank}" "${seed}" train_gpt.py
    done
    await_scripts
    islands+="${islands:+, }$(loss_of "two-${seed}-0")"
    alone+="${alone:+, }$(loss_of "alone-${seed}")"
    ddp+="${ddp:+, }$(loss_of "ddp-${seed}-0")"
    say "loss, seeds so far: two islands ${islands}; one ${alone}; DDP ${ddp}"
  done
  figures+=("\"val_loss_two_islands\": [${islands}]"
    "\"val_loss_one_island\": [${alone}]" "\"val_loss_ddp\": [${ddp}]")
}

links() {
  local report="${work}/links.report" by_link
  CAUSEWAY_LIBRARY="${coordinator%/server/*}/worker/embedding/libcauseway.so" \
    tests/wan/run.sh --scenario tests/pytorch/links.textproto \
    --worker "${ROOT}/tests/pytorch/wan_island.py" --json "${report}"
  by_link="$(perl -MJSON::PP -0e 'my $report = decode_json(<>);
    print join ", ", map {
      sprintf q("%s": %.4f), $_->{network}, $_->{compute_utilization}
    } @{$report->{settings}}' "${report}")"
  say "utilization: ${by_link}"
  figures+=("\"utilization\": {${by_link}}")
}

finish_on_exit
deploy/install_deps.sh build quickstart peers
more_targets=(//worker/embedding:libcauseway.so)
build_programs
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-pytorch.XXXXXX")"
for part in ${parts//,/ }; do
  case "${part}" in
    cost | loss | links) "${part}" ;;
    *) fail "there is no part ${part}" ;;
  esac
done
if [[ -n "${json}" ]]; then
  (IFS=, && printf '{%s}\n' "${figures[*]}") >"${json}"
fi
