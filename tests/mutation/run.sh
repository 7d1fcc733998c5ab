#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: tests/mutation/run.sh [--diff REV | FILE...] [OPTION...]; see --help.

set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
# shellcheck source=deploy/bazel.sh
. "${HERE}/../../deploy/bazel.sh"

exec python3 "${HERE}/run.py" "${BAZEL[@]}" -- "$@"
