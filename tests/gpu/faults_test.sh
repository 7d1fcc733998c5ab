#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Islands on GPUs that fail: each exits with code 1, and says why in its log and
# to the coordinator. The emulator of tests/cuda_emulator makes the faults; on
# other machines there is nothing to test.
set -euo pipefail

readonly ROOT="${TEST_SRCDIR}/${TEST_WORKSPACE}"
work="$(mktemp -d "${TEST_TMPDIR}/faults.XXXXXX")"
coordinator=
trap 'if [[ -n "${coordinator}" ]]; then kill "${coordinator}" 2>/dev/null || true; fi' EXIT
failures=0

cat >"${work}/config" <<'CONFIG'
name: "gpu-faults"
seed: 1
model { layers: 2 hidden_size: 64 intermediate_size: 176 heads: 2 sequence_length: 32 }
data { tokenizer: BYTES }
training { total_steps: 1000 batch_size: 8 micro_batch_size: 4 inner_algorithm: ACCO }
synchronization { inner_steps_per_round: 20 fragments: 2 overlap_steps: 4 uplink_format: E3M0 }
membership { min_islands: 1 max_islands: 2 }
CONFIG
cat "${ROOT}"/tests/gpu/*.sh >"${work}/text"

start_coordinator() {
  local i
  "${ROOT}/server/causeway-coordinator" --config "${work}/config" \
    --state_dir "${work}/state" --listen 127.0.0.1:0 --port_file "${work}/port" \
    >"${work}/coordinator.log" 2>&1 &
  coordinator=$!
  for ((i = 0; i < 300; ++i)); do
    if [[ -s "${work}/port" ]]; then return; fi
    sleep 0.1
  done
  cat "${work}/coordinator.log"
  exit 1
}

# island NAME DEVICE [VARIABLE=VALUE...]: runs an island to its end; its log is
# work/NAME.log.
island() {
  local name="$1" device="$2" code=0
  shift 2
  env "$@" timeout 200 "${ROOT}/worker/causeway-worker" \
    --coordinator "127.0.0.1:$(<"${work}/port")" --island "${name}" \
    --data "${work}/text" --device "${device}" --log_seconds 0 --rank_timeout 150 \
    >"${work}/${name}.log" 2>&1 || code=$?
  if ((code != 1)); then
    echo "FAILED: ${name} ended with ${code}, not 1"
    tail -n 20 "${work}/${name}.log"
    failures=$((failures + 1))
  fi
}

# expect FILE PATTERN: fails the test unless the file has the pattern.
expect() {
  if ! grep -qE "$2" "$1"; then
    echo "FAILED: nothing like \"$2\" in"
    tail -n 20 "$1"
    failures=$((failures + 1))
  fi
}

start_coordinator
island no-device cuda:7
expect "${work}/no-device.log" 'there is no device cuda:7; this machine has [0-9]+'
if ! grep -q 'this machine has 2' "${work}/no-device.log"; then
  echo "not the emulator's devices"
  exit 0
fi

island little-memory cuda:0 CUDA_EMULATOR_MIB=60
expect "${work}/little-memory.log" \
  'training.micro_batch_size 4 needs about [0-9]+ MiB, and [0-9]+ MiB were free'

island bad-memory cuda CUDA_EMULATOR_FAULT=1:800:214
expect "${work}/bad-memory.log" 'step [1-9]'
expect "${work}/bad-memory.log" "have no access to each other's memory"
expect "${work}/bad-memory.log" 'cuda:1: .*cudaErrorECCUncorrectable'
"${ROOT}/cli/causeway" events --coordinator "127.0.0.1:$(<"${work}/port")" \
  >"${work}/events"
expect "${work}/events" 'bad-memory.*cuda:1: .*cudaErrorECCUncorrectable'

if ((failures > 0)); then exit 1; fi
echo "PASSED"
