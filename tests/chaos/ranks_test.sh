#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# ranks_test.sh KINDS: one fault of each of these kinds.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

need python3
python3 tests/chaos/ranks.py --programs . --count 1 --kinds "$1" \
  --fault_seconds 4 --calm_seconds 3 --step_seconds 0.1
