#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the load tool and the coordinator, and runs them: many islands in one
# process, and many joiners at once, against one coordinator on loopback. It
# takes the options of tests/load/main.cc, which describes the report; --help
# lists them.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
# shellcheck source=deploy/bazel.sh
. "${root}/deploy/bazel.sh"

bin="$(bazel_build_once "${root}" //tests/load:causeway-load \
  //server:causeway-coordinator)"
exec "${bin}/tests/load/causeway-load" --programs "${bin}" "$@"
