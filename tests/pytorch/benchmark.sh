#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures islands of PyTorch: what they add to a step, and what they learn.

set -euo pipefail

# shellcheck source=tests/comparison.sh
. "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

usage() {
  cat <<'USAGE'
usage: tests/pytorch/benchmark.sh [--json FILE] [--parts LIST] [--seeds LIST]
                                  [--steps N] [--rates LIST] [--keep]

  --json FILE   write the figures as JSON
  --parts LIST  of cost,loss,muon,lora,links,plain (default: all of them)
  --seeds LIST  seeds of the loss, muon and lora runs (default: 1,2)
  --steps N     steps of a run of loss, muon and plain (default: 1200); those of
                lora have a quarter
  --rates LIST  Mbit/s of the link in plain (default: 10,100)
  --keep        keep the working directory

Writes after_step_idle_microseconds, send_over_copy and apply_over_copy (cost;
also with _pytorch2, and with _fsdp2 and _fsdp2_two_ranks for ranks whose model
FSDP2 shards), val_loss_two_islands, val_loss_one_island and val_loss_ddp (loss;
a list with a value for each seed), val_loss_two_islands_muon and
val_loss_ddp_muon (muon; the same with PyTorch's Muon), lora_loss_ratio (lora;
two islands over DDP, which train an adapter of PEFT), utilization by link
(links), and plain, which has tokens/s, bytes on the link and loss, by rate, of
two islands and of DiLoCo as people write it themselves: an all-reduce in fp32
over Gloo.
Costs, rates and utilization mean something only on a machine that has nothing
else to do; the losses do not depend on it. Links and plain need root, for
network namespaces.
USAGE
}

parts=cost,loss,muon,lora,links,plain
seeds=1,2
steps=1200
rates=10,100
parse_flags "json parts seeds steps rates" "$@"
cd "${ROOT}"

# Waits for all processes, for the coordinator last: it ends with the run.
await_scripts() {
  local index pid
  for ((index = ${#pids[@]} - 1; index >= 0; --index)); do
    pid="${pids[index]}"
    wait "${pid}" || fail_of "${names[${pid}]}" "failed"
  done
  pids=()
}

# begin_run NAME FLAG...: starts a coordinator with the files that a script has written
# to work/NAME.files.
begin_run() {
  await_scripts
  start_coordinator "$1" "${work}/$1.files/run.textproto" "" \
    --initial_parameters "${work}/$1.files/initial.safetensors" \
    --exit_when_finished "${@:2}"
}

# measure_cost SUFFIX RANKS [--pytorch2]: measures an island of RANKS ranks that
# shard the model, or of one process (0). The names of the figures end in
# SUFFIX.
measure_cost() {
  local run="cost$1" ranks="$2" trainer=("${@:3}" tests/pytorch/step_cost.py)
  local rank line name value
  start_script "create-${run}" "${trainer[@]}" --create_run "${work}/${run}.files"
  begin_run "${run}"
  trainer+=(--coordinator "${address}")
  if ((ranks == 0)); then start_script "${run}-0" "${trainer[@]}"; fi
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK="${rank}" WORLD_SIZE="${ranks}" MASTER_ADDR=127.0.0.1 \
      MASTER_PORT=29577 start_script "${run}-${rank}" "${trainer[@]}"
  done
  await_scripts
  line="$(grep '^{' "${work}/${run}-0.log")"
  say "${run}: ${line}"
  while read -r name value; do figure "${name}$1" "${value}"; done < <(
    perl -MJSON::PP -e 'my $figures = decode_json($ARGV[0]);
      print "$_ $figures->{$_}\n" for sort keys %$figures' "${line}")
}

use_pytorch2() {
  CAUSEWAY_PYTORCH2="$(tests/pytorch/environment.sh)"
  export CAUSEWAY_PYTORCH2
}

cost() {
  measure_cost "" 0
  use_pytorch2
  measure_cost _pytorch2 0 --pytorch2
  measure_cost _fsdp2 1 --pytorch2
  measure_cost _fsdp2_two_ranks 2 --pytorch2
}

loss_of() {
  sed -nE 's/^validation loss ([0-9.]+) at the end$/\1/p' "${work}/$1.log"
}

# islands_and_ddp NAME ISLAND LOOP FLAG...: trains two islands of a run, whose
# files a script has written, with the script ISLAND, and then two data parallel
# ranks on as many tokens with the script LOOP. `python` chooses the PyTorch.
# Appends the losses to `islands` and `ddp`.
islands_and_ddp() {
  local name="$1" island="$2" loop="$3" rank
  shift 3
  begin_run "${name}"
  for rank in 0 1; do
    CAUSEWAY_COORDINATOR="${address}" CAUSEWAY_ISLAND="island-${rank}" \
      start_script "${name}-${rank}" ${python[@]+"${python[@]}"} "${island}" "$@"
  done
  await_scripts
  for rank in 0 1; do
    RANK="${rank}" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29577 \
      start_script "${name}-ddp-${rank}" ${python[@]+"${python[@]}"} "${loop}" \
      "$@"
  done
  await_scripts
  islands+="${islands:+, }$(loss_of "${name}-0")"
  ddp+="${ddp:+, }$(loss_of "${name}-ddp-0")"
  say "${name}: two islands ${islands}; DDP ${ddp}"
}

loss() {
  local seed islands='' alone='' ddp='' python=() flags
  use_perl_manual
  for seed in ${seeds//,/ }; do
    flags=(--data "${data[@]}" --seed "${seed}" --steps "${steps}")
    start_script "create-${seed}" examples/pytorch/create_run.py \
      --out "${work}/two-${seed}.files" --steps "${steps}" --seed "${seed}"
    islands_and_ddp "two-${seed}" examples/pytorch/train_gpt_island.py \
      examples/pytorch/train_gpt.py "${flags[@]}"
    start_script "alone-${seed}" examples/pytorch/train_gpt.py "${flags[@]}"
    await_scripts
    alone+="${alone:+, }$(loss_of "alone-${seed}")"
    say "one island: ${alone}"
  done
  figure val_loss_two_islands "[${islands}]"
  figure val_loss_one_island "[${alone}]"
  figure val_loss_ddp "[${ddp}]"
}

# Measures the same with PyTorch's Muon.
muon() {
  local seed islands='' ddp='' python=(--pytorch2)
  local loop=tests/pytorch/muon_loss.py
  use_pytorch2
  use_perl_manual
  for seed in ${seeds//,/ }; do
    start_script "create-muon-${seed}" examples/pytorch/create_run.py \
      --out "${work}/muon-${seed}.files" --steps "${steps}" --seed "${seed}"
    islands_and_ddp "muon-${seed}" "${loop}" "${loop}" --data "${data[@]}" \
      --seed "${seed}" --steps "${steps}"
  done
  figure val_loss_two_islands_muon "[${islands}]"
  figure val_loss_ddp_muon "[${ddp}]"
}

# Trains a small Llama on prose, and then adapters of it on sources of Python.
lora() {
  local seed islands='' ddp='' ratios='' python=(--pytorch2) flags
  local loop=tests/pytorch/lora_loss.py base=(--base "${work}/llama")
  use_pytorch2
  use_perl_manual
  cat /usr/lib/python3.*/*.py >"${work}/sources.txt"
  start_script llama "${python[@]}" "${loop}" "${base[@]}" --pretrain \
    --steps 800 --data "${data[@]}"
  for seed in ${seeds//,/ }; do
    await_scripts
    flags=("${base[@]}" --seed "${seed}" --steps "$((steps / 4))"
      --data "${work}/sources.txt")
    start_script "create-lora-${seed}" "${python[@]}" "${loop}" "${flags[@]}" \
      --create_run "${work}/lora-${seed}.files"
    islands_and_ddp "lora-${seed}" "${loop}" "${loop}" "${flags[@]}"
    ratios+="${ratios:+, }$(calculate "a / b" \
      a="$(loss_of "lora-${seed}-0")" b="$(loss_of "lora-${seed}-ddp-0")")"
  done
  figure lora_loss_ratio "[${ratios}]"
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
  figure utilization "{${by_link}}"
}

# train_apart NAME BYTES ENVIRONMENT...: trains with side_by_side.py at both
# ends of the link, which has carried BYTES before. Prints the figures as JSON.
train_apart() {
  local name="$1" before="$2" side rate
  shift 2
  for side in 0 1; do
    within=(ip netns exec "${zone}-${side}" env "${@//SIDE/${side}}"
      "GLOO_SOCKET_IFNAME=${devices[side]}")
    start_script "${name}-${side}" tests/pytorch/side_by_side.py \
      --data "${data[@]}" --seed "${seeds%%,*}" --steps "${steps}"
  done
  within=()
  await_scripts
  rate="$(sed -nE 's/^\{"tokens_per_second": ([0-9.]+)\}$/\1/p' \
    "${work}/${name}-0.log" "${work}/${name}-1.log" |
    awk '{ sum += $1 } END { printf "%.0f", sum }')"
  line="{\"tokens_per_second\": ${rate}, \"bytes\": $((\
    $(carried_bytes) - before)), \"val_loss\": $(loss_of "${name}-0")}"
  say "${name} Mbit/s: ${line}"
}

plain() {
  local rate before line by_rate='' islands
  add_network || return 0
  use_perl_manual
  for rate in ${rates//,/ }; do
    shape "$((rate * 1000000))"
    start_script "create-${rate}" examples/pytorch/create_run.py \
      --out "${work}/islands-${rate}.files" --steps "${steps}" \
      --seed "${seeds%%,*}" --round 40 --momentum 0.4
    await_scripts
    before="$(carried_bytes)"
    host=10.177.0.1
    within=(ip netns exec "${zone}-0")
    begin_run "islands-${rate}" --insecure
    train_apart "islands-${rate}" "${before}" CAUSEWAY_ISLAND=island-SIDE \
      "CAUSEWAY_COORDINATOR=${address}"
    islands="${line}"
    train_apart "plain-${rate}" "$(carried_bytes)" RANK=SIDE WORLD_SIZE=2 \
      MASTER_ADDR=10.177.0.1 MASTER_PORT=29577
    by_rate+="${by_rate:+, }\"${rate} Mbit/s\": {\"causeway\": ${islands},"
    by_rate+=" \"plain\": ${line}}"
  done
  figure side_by_side "{${by_rate}}"
}

finish_on_exit
deploy/install_deps.sh build quickstart peers
more_targets=(//worker/embedding:libcauseway.so)
build_programs
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-pytorch.XXXXXX")"
run_parts cost loss muon lora links plain
