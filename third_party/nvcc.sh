#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# nvcc.sh ARGUMENT...: runs nvcc, and fails if nvcc has put a trap into device
# code. nvcc silently does so in place of code that it cannot translate because
# the code needs the address of a constant of the host: to take an element of an
# array, or as an argument of std::min.
set -euo pipefail

readonly NVCC=/usr/local/cuda/bin/nvcc

kept="$(mktemp -d)"
readonly kept
trap 'rm -rf "${kept}"' EXIT

"${NVCC}" --keep --keep-dir "${kept}" "$@"

if grep -q '^[[:space:]]*trap;' "${kept}"/*.ptx; then
  awk '
    # .entry NAME(..., .func NAME(... or .func (RESULT) NAME(...
    /\.(entry|func) / {
      name = $0
      sub(/^.*\.(entry|func) +(\([^)]*\) *)?/, "", name)
      sub(/\(.*/, "", name)
    }
    /^[ \t]*trap;/ && !seen[name]++ { print name }
  ' "${kept}"/*.ptx | c++filt |
    sed 's/.*/error: nvcc has left out code of &: does it use a constant of the host by its address?/' >&2
  exit 1
fi
