#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# links_test.sh KINDS: one fault of each of these kinds.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

need_root_and python3 unshare nsenter ip tc iptables
unshare --net true || skip "this system does not permit network namespaces"
unshare --net python3 tests/chaos/links.py --programs . --kinds "$1" --count 1 \
  --cut_seconds 1 --step_seconds 0.1
