#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: python/run_test.sh FILE [ARGUMENT...]
#
# Runs a Python test from the root of the tree, with the packages of python/ in
# the path and a Python 3 that has PyTorch.

set -euo pipefail

for python in python3 /usr/bin/python3; do
  if "${python}" -c 'import torch' 2>/dev/null; then break; fi
  python=
done
if [[ -z "${python}" ]]; then
  echo "run_test: no Python 3 has PyTorch: neither python3 nor" \
    "/usr/bin/python3. Run deploy/install_deps.sh test" >&2
  exit 1
fi

file="$1"
shift
export PYTHONPATH="${PWD}/python" PYTHONDONTWRITEBYTECODE=1
case "${file}" in
  # A script's own folder comes first in its path, and there causeway/torch
  # would hide PyTorch. A module's does not.
  python/*)
    module="${file#python/}"
    module="${module%.py}"
    exec "${python}" -m "${module//\//.}" "$@"
    ;;
  *) exec "${python}" "${file}" "$@" ;;
esac
