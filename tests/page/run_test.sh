#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: tests/page/run_test.sh FILE [ARGUMENT...]
#
# Runs a Python test that drives Chromium, with Debian's Python, whose modules
# know the browser. Skips it, and says so, where these are not installed.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

need /usr/bin/chromium /usr/bin/chromedriver
/usr/bin/python3 -c 'import selenium' 2>/dev/null ||
  skip "/usr/bin/python3 has no selenium (deploy/install_deps.sh test)"
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$@"
