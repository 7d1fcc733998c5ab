#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the load tool and the coordinator, and runs them: many islands in one
# process, and many joiners at once, against one coordinator on loopback.
# tests/load/main.cc describes the report.

set -euo pipefail

# shellcheck source=tests/forward_options.sh
. "$(dirname "${BASH_SOURCE[0]}")/../forward_options.sh"

usage() {
  cat <<'USAGE'
usage: tests/load/run.sh [--islands N] [--rounds N] [--joiners N] [--limit N]
                         [--json FILE] [--layers N] [--hidden_size N]
                         [--joined_layers N] [--joined_hidden_size N]

  --islands N             number of islands, 0 for none (256)
  --rounds N              rounds that all islands take part in (50)
  --layers N              blocks of the model that they train (2)
  --hidden_size N         width of that model (32)
  --joiners N             islands that join at once, 0 for none (16)
  --limit N               10^6 bytes per second that each of them asks for; 0 is
                          no limit (0)
  --joined_layers N       blocks of the model that they download (8)
  --joined_hidden_size N  width of that model (512)
  --json FILE             write the report there
USAGE
}

forward_options "islands rounds layers hidden_size joiners limit joined_layers \
joined_hidden_size json" "$@"

bin="$(bazel_build_once "${ROOT}" //tests/load:causeway-load \
  //server:causeway-coordinator)"
exec "${bin}/tests/load/causeway-load" --programs "${bin}" \
  ${options[@]+"${options[@]}"}
