#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Reads options as scripts do, and compares the results.

set -euo pipefail

# shellcheck source=deploy/read_options.sh
. "$(dirname "$0")/read_options.sh"

usage() { echo "the usage"; }

# read_all ARGUMENT...: prints what the arguments set, or the error.
read_all() {
  (
    keep=false no_check=false bin=
    read_options "keep no-check" "bin json" "$@"
    echo "${keep} ${no_check} ${bin} ${json-unset} ${rest[*]} (${options[*]})"
  ) 2>&1 || echo "code $?"
}

# expect WANT ARGUMENT...
expect() {
  local got
  got="$(read_all "${@:2}")"
  if [[ "${got}" != "$1" ]]; then
    printf 'read_options %s: want\n%s\ngot\n%s\n' "${*:2}" "$1" "${got}" >&2
    exit 1
  fi
}

name="$(basename "$0")"
expect "false false  unset  ()"
expect "true true a=b f x y (--bin a=b --json f)" --bin=a=b x --json f --keep --no-check y
expect "the usage" x --help
expect $'the usage\n'"${name}: unknown option '--other'"$'\ncode 2' --other
expect $'the usage\n'"${name}: unknown option '-k'"$'\ncode 2' -k
# A flag takes no value.
expect $'the usage\n'"${name}: unknown option '--keep=false'"$'\ncode 2' \
  --keep=false
rest=(left)
got="$( (refuse_rest) 2>&1)" && exit 1
[[ "${got}" == $'the usage\n'"${name}: unknown argument 'left'" ]]
rest=()
refuse_rest
expect "${name}: --json needs a value"$'\ncode 2' --keep --json
