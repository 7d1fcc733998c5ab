# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Reads options for the scripts that source this file. They define usage(), which
# prints their help.

# read_options FLAGS NAMES ARGUMENT...: sets the variable of each flag, such as
# `keep` for --keep or `no_check` for --no-check, to true, and the variable of each
# option in NAMES to the value that follows it. Collects these options with their
# values in the array `options`, and other arguments in the array `rest`. A wrong
# option ends the script with 2.
read_options() {
  local flags=" $1 " names=" $2 " name
  shift 2
  options=()
  rest=()
  while (($#)); do
    name="${1#--}"
    if [[ "$1" == --*=* && "${names}" == *" ${name%%=*} "* ]]; then
      set -- "--${name%%=*}" "${1#*=}" "${@:2}"
      name="${1#--}"
    fi
    if [[ "$1" == -h || "$1" == --help ]]; then
      usage
      exit 0
    elif [[ "$1" != -* ]]; then
      rest+=("$1")
    elif [[ "${flags}" == *" ${name} "* ]]; then
      printf -v "${name//-/_}" true
    elif [[ "${names}" != *" ${name} "* ]]; then
      usage >&2
      echo "$(basename "$0"): unknown option '$1'" >&2
      exit 2
    elif (($# < 2)); then
      echo "$(basename "$0"): $1 needs a value" >&2
      exit 2
    else
      printf -v "${name}" '%s' "$2"
      options+=("--${name}" "$2")
      shift
    fi
    shift
  done
}

# refuse_rest: ends the script with 2 if `rest` has arguments.
refuse_rest() {
  if ((${#rest[@]} == 0)); then return; fi
  usage >&2
  echo "$(basename "$0"): unknown argument '${rest[0]}'" >&2
  exit 2
}
