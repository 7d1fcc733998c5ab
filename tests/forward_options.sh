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

# forward_options NAMES ARGUMENT...: puts the arguments into `options`. Each
# must be one of NAMES, a list separated by spaces, followed by a value. -h
# prints usage() and ends the script; a wrong argument ends it with 2.
forward_options() {
  local names=" $1 "
  shift
  options=()
  while (($#)); do
    if [[ "$1" == -h || "$1" == --help ]]; then
      usage
      exit 0
    elif [[ "${names}" != *" $1 "* ]]; then
      usage >&2
      echo "run.sh: unknown argument '$1'" >&2
      exit 2
    elif (($# < 2)); then
      echo "run.sh: $1 needs a value" >&2
      exit 2
    fi
    options+=("$1" "$2")
    shift 2
  done
}
