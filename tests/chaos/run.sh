#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the chaos kit and its programs, and runs it: a coordinator and islands
# as processes on emulated links, under a schedule of faults. It takes the
# options of tests/chaos/main.cc, which describes the report; --help lists them.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
# shellcheck source=deploy/bazel.sh
. "${root}/deploy/bazel.sh"

bin="$(bazel_build_once "${root}" //tests/chaos:causeway-chaos \
  //server:causeway-coordinator //worker:causeway-worker)"
exec "${bin}/tests/chaos/causeway-chaos" --programs "${bin}" "$@"
