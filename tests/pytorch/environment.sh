#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes a Python environment with the packages of requirements.txt, for the
# tests whose names end in _pytorch2, and prints its folder. The environment is
# kept, and extended when that file changes. Fails, with the reason on stderr,
# where the packages are not available.

set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
readonly HERE
# shellcheck source=deploy/bazel.sh
. "${HERE}/../../deploy/bazel.sh"

readonly FOLDER="${HOME}/.cache/causeway/pytorch2"

if (($# > 0)); then
  echo "usage: tests/pytorch/environment.sh"
  if [[ "$*" == --help || "$*" == -h ]]; then exit 0; else exit 2; fi
fi
# The copy of the list is made last.
if ! cmp -s "${HERE}/requirements.txt" "${FOLDER}/requirements.txt"; then
  /usr/bin/python3 -m venv "${FOLDER}" >&2
  if ! "${FOLDER}/bin/pip" install -qq --disable-pip-version-check \
    --only-binary=:all: --retries 1 --timeout 20 \
    --requirement "${HERE}/requirements.txt" >&2; then
    echo "environment: these packages cannot be had from PyPI" >&2
    exit 1
  fi
  cp "${HERE}/requirements.txt" "${FOLDER}/"
fi
printf '%s\n' "${FOLDER}"
