#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the chaos kit and its programs, and runs it: a coordinator and islands
# as processes on emulated links, under a schedule of faults.
# tests/chaos/main.cc describes the report.

set -euo pipefail

# shellcheck source=tests/forward_options.sh
. "$(dirname "${BASH_SOURCE[0]}")/../forward_options.sh"

usage() {
  cat <<'USAGE'
usage: tests/chaos/run.sh [--minutes N] [--json FILE] [--fault_seconds N]
                          [--islands N] [--seed N] [--step_seconds N]
                          [--baseline_minutes N] [--directory DIR]

Needs root, outside of most containers. Exits with 0 if all invariants hold,
with 77 where network namespaces are not permitted. The run without faults comes
first and takes a fifth of --minutes, at most 2, unless --baseline_minutes says
otherwise.

  --minutes N         duration of the run with faults (10)
  --json FILE         write the report there
  --fault_seconds N   seconds from one fault to the next (15)
  --islands N         1 to 6, beside one that comes and goes (4)
  --seed N            decides the faults (1)
  --step_seconds N    simulated time of an inner step (0.1)
  --directory DIR     keep states and logs in DIR, which must not exist
USAGE
}

forward_options "minutes json fault_seconds islands seed step_seconds \
baseline_minutes directory" "$@"

bin="$(bazel_build_once "${ROOT}" //tests/chaos:causeway-chaos \
  //server:causeway-coordinator //worker:causeway-worker)"
exec "${bin}/tests/chaos/causeway-chaos" --programs "${bin}" "${options[@]}"
