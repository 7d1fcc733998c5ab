#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs, cuts and slows links between the hosts of an island, and
# lets hosts be lost. Needs root, outside of most containers. It takes the
# options of tests/chaos/links.py, which describes the faults and the report;
# --help lists them.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
# shellcheck source=deploy/bazel.sh
. "${root}/deploy/bazel.sh"

if [[ "$*" == -h || "$*" == --help ]]; then
  exec python3 "${root}/tests/chaos/links.py" --help
fi
bin="$(bazel_build_once "${root}" //server:causeway-coordinator \
  //worker:causeway-worker //cli:causeway)"
PATH+=:/usr/sbin:/sbin
exec unshare --net python3 "${root}/tests/chaos/links.py" \
  --programs "${bin}" "$@"
