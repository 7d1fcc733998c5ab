# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Lets scripts that build and run one program hand options on to it. Source this
# file: it sets ROOT, the root of the repository, and sources deploy/bazel.sh.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

# forward_options NAMES ARGUMENT...: is read_options where each option has a value
# and there are no other arguments.
forward_options() {
  read_options "" "$@"
  refuse_rest
}
