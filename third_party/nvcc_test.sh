#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Tests that nvcc.sh notices code that was left out. Without nvcc there is
# nothing to test.
set -euo pipefail

if ! [[ -x /usr/local/cuda/bin/nvcc ]]; then
  echo "there is no nvcc here"
  exit 0
fi
cd "${TEST_TMPDIR}"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# compile CONSTANT: compiles a kernel that writes it.
compile() {
  cat >kernel.cu <<SOURCE
inline constexpr unsigned kSteps[2] = {3, 5};
inline constexpr unsigned kStep = 3;
constexpr unsigned Step(int i) { return $1; }
__global__ void WriteStep(int i, unsigned* to) { *to = Step(i); }
SOURCE
  "${TEST_SRCDIR}/${TEST_WORKSPACE}/third_party/nvcc.sh" -c -std=c++20 \
    --expt-relaxed-constexpr -gencode=arch=compute_80,code=sm_80 kernel.cu \
    -o kernel.o >log 2>&1
}

compile 'kStep + i' || fail "a kernel that is whole: $(<log)"
[[ -s kernel.o ]] || fail "no object"
if compile 'kSteps[i]'; then fail "a kernel that reads a constant of the host"; fi
grep -q 'left out code of .*WriteStep' log || fail "the message: $(<log)"
if compile 'syntax error'; then fail "a kernel that does not compile"; fi
echo "PASSED"
