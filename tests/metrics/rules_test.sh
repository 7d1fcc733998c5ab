#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the cases of the alerts by promtool, and checks that each alert has a
# case in which it fires.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

need promtool
cd deploy/prometheus
promtool check config prometheus.yml
promtool test rules causeway.rules_test.yml

status=0
while read -r alert; do
  if ! grep -A1 "alertname: ${alert}\$" causeway.rules_test.yml |
    grep -q exp_alerts; then
    echo "no case fires ${alert}"
    status=1
  fi
done < <(sed -n 's/.*- alert: //p' causeway.rules.yml)
exit "${status}"
