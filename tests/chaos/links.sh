#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs, cuts and slows links between the hosts of an island, and
# lets hosts be lost. tests/chaos/links.py describes the faults and the report.

set -euo pipefail

# shellcheck source=tests/forward_options.sh
. "$(dirname "${BASH_SOURCE[0]}")/../forward_options.sh"

usage() {
  cat <<'USAGE'
usage: tests/chaos/links.sh [--json FILE] [--count N] [--kinds LIST]
                            [--step_seconds N] [--hang_floor N]
                            [--cut_seconds N] [--seed N]

Exits with 0 if every fault was found and repaired, and nothing else was blamed.
Needs root, outside of most containers.

  --json FILE       write the report there
  --count N         faults of each kind (10)
  --kinds LIST      of the kinds that links.py describes, as slow,cut (all)
  --step_seconds N  simulated time of an inner step (0.2)
  --hang_floor N    of causeway-worker (2)
  --cut_seconds N   how long the island trains without a link that is cut or
                    crawls, or a host that is lost (5)
  --seed N          decides the faults (1)
USAGE
}

forward_options "json count kinds step_seconds hang_floor cut_seconds seed" "$@"

bin="$(bazel_build_once "${ROOT}" //server:causeway-coordinator \
  //worker:causeway-worker //cli:causeway)"
PATH+=:/usr/sbin:/sbin
exec unshare --net python3 "${ROOT}/tests/chaos/links.py" \
  --programs "${bin}" "${options[@]}"
