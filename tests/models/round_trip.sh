#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Takes tiny checkpoints of every family of models through Causeway: imports
# each, begins a run with it, evaluates that, exports it, and compares the bytes
# of all tensors and the loss that PyTorch computes. Then two islands train one
# of them, and PyTorch computes the loss of what is exported. Needs the packages
# python3-torch and python3-numpy.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

readonly TRAINED_FAMILY=qwen2.5

usage() { echo "usage: tests/models/round_trip.sh [--json FILE] [--keep]"; }

json=
read_options keep json "$@"
refuse_rest
if [[ -n "${json}" ]]; then json="$(realpath "${json}")"; fi

checkpoints() { /usr/bin/python3 tests/models/checkpoints.py "$@"; }

# tool NAME ARGUMENT...: runs a command of `causeway`, and prints what it does.
tool() {
  "${causeway}" "$@" 2>"${work}/tool.log" || fail_of tool "($1) failed"
}

# compare STATE EXPORTED LENGTH: prints the loss by `causeway evaluate`, and that
# of the exported model by PyTorch.
compare() {
  tool evaluate "${work}/$1" --data "${work}/models/tokens.bin" --threads 1 \
    --json | perl -MJSON::PP -e 'print decode_json(<STDIN>)->{loss}, " "'
  checkpoints loss "$2" "${work}/models/tokens.bin" "$3"
}

# round_trip NAME DTYPE LENGTH: appends a line to work/results: NAME, tensors,
# tensors with the same bytes, and the losses of compare.
round_trip() {
  local flag exported="${work}/$1-exported" counts losses
  case "$2" in
    float32) flag=fp32 ;;
    float16) flag=fp16 ;;
    *) flag=bf16 ;;
  esac
  tool import "${work}/models/$1" --out "${work}/$1.textproto" \
    --sequence_length "$3" --total_steps 40 >/dev/null
  start_coordinator "$1" "${work}/$1.textproto" "" \
    --initial_parameters "${work}/models/$1"
  stop_processes
  tool export "${work}/$1" --out "${exported}" --dtype "${flag}" \
    --like "${work}/models/$1" >/dev/null
  counts="$(checkpoints same "${work}/models/$1" "${exported}")"
  losses="$(compare "$1" "${exported}" "$3")"
  echo "$1 ${counts} ${losses}" >>"${work}/results"
}

# train NAME LENGTH: trains the model of a round trip on two islands, and writes
# the losses of compare to work/trained.
train() {
  local island run="$1-trained"
  {
    sed 's/inner_steps_per_round: .*/inner_steps_per_round: 10/' \
      "${work}/$1.textproto"
    echo 'membership { min_islands: 2 max_islands: 2 }'
  } >"${work}/${run}.textproto"
  start_coordinator "${run}" "${work}/${run}.textproto" "" \
    --initial_parameters "${work}/models/$1"
  for island in north south; do
    start "${run}-${island}" "${worker}" --coordinator "${address}" \
      --island "${island}" --threads 1 --data "${work}/models/tokens.bin"
  done
  await_islands
  stop_processes
  tool export "${work}/${run}" --out "${work}/${run}-exported" \
    --like "${work}/models/$1" >/dev/null
  compare "${run}" "${work}/${run}-exported" "$2" >"${work}/trained"
}

# report: prints a table, and the figures as JSON to `json` if it is set. Fails
# if a byte or a loss differs.
report() {
  /usr/bin/python3 - "${work}/results" "${work}/trained" "${json}" <<'PYTHON'
import json
import sys

print(f"\n{'family':<16}{'tensors':>8}{'same':>6}{'causeway':>11}{'PyTorch':>11}")
families, identical, worst = [], True, 0.0
for line in open(sys.argv[1], encoding="ascii"):
    name, tensors, same, ours, theirs = line.split()
    families.append(name)
    identical = identical and tensors == same
    worst = max(worst, abs(float(ours) - float(theirs)))
    print(f"{name:<16}{tensors:>8}{same:>6}{float(ours):11.6f}"
          f"{float(theirs):11.6f}")
ours, theirs = map(float, open(sys.argv[2], encoding="ascii").read().split())
print(f"{'after training':<30}{ours:11.6f}{theirs:11.6f}")
result = {"families": families, "byte_identical": identical,
          "worst_loss_error": worst, "trained_loss_error": abs(ours - theirs)}
print("\n" + json.dumps(result))
if sys.argv[3]:
    with open(sys.argv[3], "w", encoding="ascii") as file:
        json.dump(result, file, indent=2)
sys.exit(not identical or max(worst, abs(ours - theirs)) > 1e-4)
PYTHON
}

finish_on_exit
cd "${ROOT}"
deploy/install_deps.sh build peers
say "" "Building..."
build_programs
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-models.XXXXXX")"
mkdir "${work}/models"
checkpoints make "${work}/models" >"${work}/families"
while read -r name dtype length; do
  round_trip "${name}" "${dtype}" "${length}"
  if [[ "${name}" == "${TRAINED_FAMILY}" ]]; then train "${name}" "${length}"; fi
done <"${work}/families"
report || fail "what came out is not what went in"
