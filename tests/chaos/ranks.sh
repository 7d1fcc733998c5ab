#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs, and causes faults in the ranks of a supervised island,
# its supervisor and the coordinator. tests/chaos/ranks.py describes the faults
# and the report.

set -euo pipefail

# shellcheck source=tests/forward_options.sh
. "$(dirname "${BASH_SOURCE[0]}")/../forward_options.sh"

usage() {
  cat <<'USAGE'
usage: tests/chaos/ranks.sh [--json FILE] [--count N] [--kinds LIST]
                            [--fault_seconds N] [--calm_seconds N]
                            [--step_seconds N] [--hang_floor N] [--pairs N]
                            [--seed N]

Exits with 0 if every fault was found and repaired, or ended the island where it
is to, and nobody else was blamed.

  --json FILE           write the report there
  --count N             faults of each kind (20)
  --kinds LIST          of the kinds that ranks.py describes, as kill,slow (all)
  --fault_seconds N     seconds from one fault to the next (15)
  --calm_seconds N      duration of the run without faults (60)
  --step_seconds N      simulated time of an inner step (0.2)
  --hang_floor N        of causeway-worker (2)
  --pairs N             pairs of runs that measure what watching costs (0)
  --seed N              decides the faults (1)
USAGE
}

forward_options "json count kinds fault_seconds calm_seconds step_seconds \
hang_floor pairs seed" "$@"

bin="$(bazel_build_once "${ROOT}" //server:causeway-coordinator \
  //worker:causeway-worker //cli:causeway \
  //tests/chaos:libwrong_numbers.so)"
exec python3 "${ROOT}/tests/chaos/ranks.py" --programs "${bin}" "${options[@]}"
