#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# nvcc.sh ARGUMENT...: nvcc, and an error where it has put a trap into device
# code in place of what it could not translate, which it does without a word:
# where a constant of the host is used by its address, which elements of an
# array are, and what std::min is given.
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
