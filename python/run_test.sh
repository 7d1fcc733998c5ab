#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: python/run_test.sh [--pytorch2] FILE [ARGUMENT...]
#
# Runs a Python test from the root of the tree, with the packages of python/ in
# the path and a Python 3 that has PyTorch; with --pytorch2, the one of the
# environment CAUSEWAY_PYTORCH2 (tests/pytorch/environment.sh), without which
# the test is skipped.

set -euo pipefail
# shellcheck source=tests/testing.sh
. tests/testing.sh

if [[ "$1" == --pytorch2 ]]; then
  shift
  python="${CAUSEWAY_PYTORCH2:-/nonexistent}/bin/python3"
  [[ -x "${python}" ]] || skip "there is no PyTorch 2: CAUSEWAY_PYTORCH2 is" \
    "'${CAUSEWAY_PYTORCH2:-}', and no folder of tests/pytorch/environment.sh"
else
  # Importing it would take seconds.
  has_torch='from importlib.util import find_spec; exit(not find_spec("torch"))'
  for python in python3 /usr/bin/python3; do
    if "${python}" -c "${has_torch}"; then break; fi
    python=
  done
  [[ -n "${python}" ]] || fail "no Python 3 has PyTorch: neither python3 nor" \
    "/usr/bin/python3. Run deploy/install_deps.sh test"
fi

file="$1"
shift
# Processes that share the cores would wait for each other's threads.
export PYTHONPATH="${PWD}/python" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
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
