#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the WAN lab and its programs, and runs a scenario: real processes on
# emulated long links. tests/wan/scenario.proto describes scenarios,
# tests/wan/report.h the report.

set -euo pipefail

# shellcheck source=tests/forward_options.sh
. "$(dirname "${BASH_SOURCE[0]}")/../forward_options.sh"

usage() {
  cat <<'USAGE'
usage: tests/wan/run.sh --scenario NAME|FILE [--json FILE] [--repeats N]
                        [--only TEXT] [--data FILE,FILE...] [--directory DIR]
                        [--worker FILE]

Needs root, outside of most containers. Exits with 0 if all runs were made, with
77 where network namespaces are not permitted.

  --scenario NAME   what to run: one of tests/wan/scenarios, or a file
  --json FILE       write the report there, anew after each run; if FILE exists,
                    the runs that it contains are not repeated
  --repeats N       runs of each setting (default: the scenario's)
  --only TEXT       only runs whose "SETTING; NETWORK" contains TEXT
  --data FILES      text to train on (default: the GNU GPL)
  --directory DIR   keep states and logs in DIR, which must not exist
  --worker FILE     the program that is an island, instead of causeway-worker
USAGE
}

scenario=
forward_options "scenario json repeats only data directory worker" "$@"
if [[ -z "${scenario}" ]]; then
  usage >&2
  echo "run.sh: --scenario is needed" >&2
  exit 2
fi
# A name means one of the committed scenarios.
if [[ ! -f "${scenario}" ]]; then
  scenario="${ROOT}/tests/wan/scenarios/${scenario}.textproto"
fi

bin="$(bazel_build_once "${ROOT}" //tests/wan:causeway-wan-lab \
  //server:causeway-coordinator //worker:causeway-worker //cli:causeway)"
exec "${bin}/tests/wan/causeway-wan-lab" --programs "${bin}" "${options[@]}" \
  --scenario "${scenario}"
