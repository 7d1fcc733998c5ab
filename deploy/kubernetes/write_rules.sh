#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Writes the alerts of prometheus/causeway.rules.yml, without its comments, into
# kubernetes/alerts/rules.yaml, both below FOLDER (default: deploy).

set -euo pipefail

if [[ "${1:-}" == -* ]]; then
  usage="usage: write_rules.sh [FOLDER]"
  if [[ "$*" == --help || "$*" == -h ]]; then echo "${usage}" && exit 0; fi
  echo "${usage}" >&2
  exit 2
fi
cd "${1:-deploy}"
rules=kubernetes/alerts/rules.yaml
head="$(sed '/^spec:$/q' "${rules}")"
{
  printf '%s\n' "${head}"
  sed -n '/^groups:$/,$s/^ *[^ #]/  &/p' prometheus/causeway.rules.yml
} >"${rules}.new"
mv "${rules}.new" "${rules}"
