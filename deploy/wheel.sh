#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes the wheel of the Python package, with libcauseway.so and the libraries
# that it needs inside.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"
# shellcheck source=deploy/libraries.sh
. "${ROOT}/deploy/libraries.sh"

usage() {
  cat <<'USAGE'
usage: deploy/wheel.sh [--cpu_only] [--library FILE] [DIRECTORY]

Writes causeway-VERSION-py3-none-manylinux_2_34_x86_64.whl to DIRECTORY
(default: .). `pip install` of it needs no network and works with Python 3.9 and
newer on x86-64 Linux with glibc 2.34 or newer. It does not bring PyTorch, which
islands need: take the one that fits your machine, or an extra: `torch`,
`lightning`, `peft` or `transformers`.

  --cpu_only       build without CUDA even if it is there
  --library FILE   take this libcauseway.so instead of building it
USAGE
}

fail() {
  printf 'wheel: error: %s\n' "$*" >&2
  exit 1
}

readonly GLIBC=2.34
cpu_only=false
library=
read_options cpu_only library "$@"
if [[ -n "${library}" ]]; then library="$(realpath "${library}")"; fi
mapfile -t options < <("${cpu_only}" || cuda_build_options)
directory="${rest[0]:-.}"
mkdir -p "${directory}"
directory="$(realpath "${directory}")"
require_tools
cd "${ROOT}"
# shellcheck source=deploy/version.sh
. deploy/version.sh
if [[ -z "${library}" ]]; then
  bin="$(bazel_build_once "${ROOT}" "${options[@]}" \
    //worker/embedding:libcauseway.so)"
  library="${bin}/worker/embedding/libcauseway.so"
fi

stage="$(mktemp -d)"
readonly stage
trap 'rm -rf "${stage}"' EXIT
readonly libraries="${stage}/causeway/lib"
mkdir -p "${libraries}"
add_python_package "${stage}"
# This file tells type checkers that the package has type hints.
touch "${stage}/causeway/py.typed"
install -D -m 644 worker/embedding/causeway.h \
  "${stage}/causeway/include/causeway.h"
grep -qx "__version__ = \"${VERSION}\"" "${stage}/causeway/__init__.py" ||
  fail "python/causeway/__init__.py has another __version__ than ${VERSION}"
add_file "${library}" "${libraries}"
add_licenses "${stage}/causeway/licenses" "${added[@]}"
# PyTorch takes these from the system, and a process can have each only once.
rm -f "${libraries}"/lib{stdc++.so.6,gcc_s.so.1}
needed="$(newest_version GLIBC_2 "${libraries}"/*)"
if [[ "$(printf '%s\n' "${needed}" "${GLIBC}" | sort -V | tail -n 1)" != \
  "${GLIBC}" ]]; then
  fail "the libraries need glibc ${needed}, newer than ${GLIBC}"
fi
description="$(cd "${stage}" &&
  python3 -B -c 'import causeway; print(causeway.__doc__)')"
python3 deploy/write_wheel.py --name causeway --version "${VERSION}" \
  --tag "py3-none-manylinux_${GLIBC/./_}_x86_64" --license LICENSE \
  --tree "${stage}" --out "${directory}" \
  --description "${description}"
