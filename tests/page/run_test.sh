#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: tests/page/run_test.sh FILE [ARGUMENT...]
#
# Runs a Python test that drives Chromium, with Debian's Python, whose modules
# know the browser. Skips it, and says so, where these are not installed.

set -euo pipefail

for program in /usr/bin/chromium /usr/bin/chromedriver; do
  if [[ ! -x "${program}" ]]; then
    echo "run_test: skipped: there is no ${program};" \
      "run deploy/install_deps.sh test"
    exit 0
  fi
done
if ! /usr/bin/python3 -c 'import selenium' 2>/dev/null; then
  echo "run_test: skipped: /usr/bin/python3 has no selenium;" \
    "run deploy/install_deps.sh test"
  exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$@"
