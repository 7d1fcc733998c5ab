#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Tests that run.sh counts tests which are skipped for want of a GPU as failures
# where there is one, and ends what takes too long. Its programs are scripts
# that print what GoogleTest does.
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

# write_program NAME LINE...: writes a program of these lines of shell.
write_program() {
  printf '%s\n' '#!/bin/sh' "${@:2}" >"${programs}/$1"
  chmod +x "${programs}/$1"
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

write_program endless_cuda_test 'exec sleep 1000'
run 1 '^0 passed, 1 failed' --timeout 0.2 --only 'end*_test'
grep -qx 'ended after 0.2 s, the limit' "${TEST_TMPDIR}/output" ||
  fail "it does not say that a program took too long"
run 2 'no programs to run' --only training

# This one says that it runs the program, as the real one does, and that it found
# an error.
# shellcheck disable=SC2016  # the program has these variables
write_program compute-sanitizer 'echo "options: $1 $2 $3 $4"' 'shift 4' '"$@"' 'exit 1'
PATH="${programs}:${PATH}" run 1 '^1 passed, 1 failed, 1 skipped' --sanitizer --only absent_cuda_test
grep -qx 'options: --tool memcheck --error-exitcode 1' "${TEST_TMPDIR}/output" ||
  fail "compute-sanitizer was not asked to check accesses"

# A benchmark that fails leaves what it has measured.
# shellcheck disable=SC2016
write_program some_cuda_benchmark 'echo "{\"speed\": 1}" >"$2"' 'exit 1'
json="${TEST_TMPDIR}/results"
"${ROOT}/tests/gpu/run.sh" --only some_cuda_benchmark --json "${json}" "${programs}" \
  >/dev/null && fail "a benchmark's failure is not one of the run"
grep -qx '"benchmarks": {"some_cuda_benchmark": {"speed": 1}}}' "${json}" ||
  fail "figures are missing: $(<"${json}")"
