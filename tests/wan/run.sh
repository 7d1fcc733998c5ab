#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the WAN lab and its programs, and runs a scenario: real processes on
# emulated long links. tests/wan/scenario.proto describes scenarios,
# tests/wan/report.h the report. It takes the options of tests/wan/main.cc, which
# --help lists; --scenario may also name one of tests/wan/scenarios.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
# shellcheck source=deploy/bazel.sh
. "${root}/deploy/bazel.sh"

# A scenario that is not a file is one of the committed scenarios.
options=()
while (($#)); do
  if [[ "$1" == --scenario=* ]]; then set -- --scenario "${1#*=}" "${@:2}"; fi
  if [[ "$1" == --scenario && -n "${2:-}" && ! -f "$2" ]]; then
    set -- "$1" "${root}/tests/wan/scenarios/$2.textproto" "${@:3}"
  fi
  options+=("$1")
  shift
done

bin="$(bazel_build_once "${root}" //tests/wan:causeway-wan-lab \
  //server:causeway-coordinator //worker:causeway-worker //cli:causeway)"
exec "${bin}/tests/wan/causeway-wan-lab" --programs "${bin}" \
  "${options[@]}"
