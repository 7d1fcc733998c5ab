#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs, and causes faults in the ranks of a supervised island,
# its supervisor and the coordinator. It takes the options of
# tests/chaos/ranks.py, which describes the faults and the report; --help lists
# them.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
# shellcheck source=deploy/bazel.sh
. "${root}/deploy/bazel.sh"

if [[ "$*" == -h || "$*" == --help ]]; then
  exec python3 "${root}/tests/chaos/ranks.py" --help
fi
bin="$(bazel_build_once "${root}" //server:causeway-coordinator \
  //worker:causeway-worker //cli:causeway \
  //tests/chaos:libwrong_numbers.so)"
exec python3 "${root}/tests/chaos/ranks.py" --programs "${bin}" "$@"
