#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds causeway-takeover and its programs, and runs it: a real etcd, three
# coordinators and islands as processes, whose leader is killed again and again.
# tests/takeover/main.cc describes the report. Needs Debian's etcd-server.

set -euo pipefail

# shellcheck source=tests/forward_options.sh
. "$(dirname "${BASH_SOURCE[0]}")/../forward_options.sh"

usage() {
  cat <<'USAGE'
usage: tests/takeover/run.sh [--kills N] [--stops N] [--others N] [--json FILE]
                             [--islands N] [--lease_seconds N] [--seed N]
                             [--directory DIR]

Exits with 0 if nothing was lost or counted twice.

  --kills N          how often the leader is killed (30)
  --stops N          how often, after that, the leader is stopped (0)
  --others N         how often, after that, each other disturbance comes (0)
  --json FILE        write the report there
  --islands N        islands (4)
  --lease_seconds N  the leader's lease (5)
  --seed N           decides the moments of the kills (1)
  --directory DIR    keep states and logs there
USAGE
}

forward_options "kills stops others json islands lease_seconds seed \
directory" "$@"

bin="$(bazel_build_once "${ROOT}" //tests/takeover:causeway-takeover \
  //server:causeway-coordinator //worker:causeway-worker)"
# shellcheck disable=SC2154  # forward_options sets options
exec "${bin}/tests/takeover/causeway-takeover" --programs "${bin}" "${options[@]}"
