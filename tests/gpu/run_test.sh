#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# run.sh counts what is skipped for want of a GPU as a failure where there is
# one. Its programs are scripts that print what GoogleTest does.
set -euo pipefail

readonly ROOT="${TEST_SRCDIR}/${TEST_WORKSPACE}"
# shellcheck source=tests/testing.sh
. "${ROOT}/tests/testing.sh"
programs="${TEST_TMPDIR}/programs"
mkdir -p "${programs}"

# write_test NAME REASON: writes a program of two cases, one of which is skipped.
write_test() {
  printf '#!/bin/sh\ncat <<OUT\n%s\nOUT\n' \
    "x.cc:7: Skipped
$2

[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:" >"${programs}/$1_cuda_test"
  chmod +x "${programs}/$1_cuda_test"
}

# run CODE PATTERN FLAG...: fails unless run.sh ends with CODE and prints PATTERN.
run() {
  local expected="$1" pattern="$2" code=0
  shift 2
  "${ROOT}/tests/gpu/run.sh" --no-benchmarks "$@" "${programs}" \
    >"${TEST_TMPDIR}/output" 2>&1 || code=$?
  if ((code != expected)) || ! grep -qE "${pattern}" "${TEST_TMPDIR}/output"; then
    cat "${TEST_TMPDIR}/output"
    fail "expected ${expected} and '${pattern}', but the code is ${code}"
  fi
}

write_test absent 'there is a device'
run 0 '^1 passed, 0 failed, 1 skipped' --require_gpu
write_test needy 'no CUDA device: the driver is too old'
run 1 'needy_cuda_test: .*: no CUDA device: the driver is too old' --require_gpu
run 1 '^2 passed, 1 failed, 1 skipped' --require_gpu
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  run 0 '^2 passed, 0 failed, 2 skipped'
fi
