#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds causeway-takeover and its programs, and runs it: a real etcd, three
# coordinators and islands as processes, whose leader is killed again and again.
# It takes the options of tests/takeover/main.cc, which describes the report;
# --help lists them. Needs Debian's etcd-server.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
# shellcheck source=deploy/bazel.sh
. "${root}/deploy/bazel.sh"

bin="$(bazel_build_once "${root}" //tests/takeover:causeway-takeover \
  //server:causeway-coordinator //worker:causeway-worker)"
exec "${bin}/tests/takeover/causeway-takeover" --programs "${bin}" "$@"
