#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs count_results.pl on made-up build events: it must count every way in
# which a test target can end.

set -euo pipefail

count="$(cd "$(dirname "$0")" && pwd)/count_results.pl"
directory="$(mktemp -d -p "${TEST_TMPDIR:-/tmp}")"
trap 'rm -rf "${directory}"' EXIT
events="${directory}/events.json"

configured() {
  printf '{"id":{"targetConfigured":{"label":"%s"}},"configured":{%s}}\n' \
    "$1" "$2" >>"${events}"
}

# ended LABEL STATUS XML: writes the events of a test target with its result and
# its test.xml.
ended() {
  local xml="${directory}/${1##*:} of.xml"
  printf '%s' "$3" >"${xml}"
  configured "$1" '"testSize":"SMALL"'
  {
    printf '{"id":{"testResult":{"label":"%s","run":1,"shard":1}},' "$1"
    printf '"testResult":{"testActionOutput":['
    printf '{"name":"test.log","uri":"file:///nowhere"},'
    printf '{"name":"test.xml","uri":"file://%s"}]}}\n' "${xml// /%20}"
    printf '{"id":{"testSummary":{"label":"%s"}},' "$1"
    printf '"testSummary":{"overallStatus":"%s"}}\n' "$2"
  } >>"${events}"
}

# expect PASSED FAILED SKIPPED: checks the counts, and starts anew.
expect() {
  local got
  got="$(perl "${count}" "${events}" | tr '\n' ' ')"
  if [[ "${got}" != "passed $1 failed $2 skipped $3 " ]]; then
    printf 'expected %s passed, %s failed, %s skipped, got: %s, for\n' \
      "$1" "$2" "$3" "${got}" >&2
    cat "${events}" >&2
    exit 1
  fi
  : >"${events}"
}

: >"${events}"
expect 0 0 0

# GoogleTest: passed, failed, skipped and disabled cases.
ended //a:mixed_test FAILED '<testsuites><testsuite name="A">
  <testcase name="Passes" status="run" result="completed" />
  <testcase name="Fails" status="run" result="completed">
    <failure message="no"><![CDATA[<testcase name="no case"/>]]></failure>
  </testcase>
  <testcase name="Skips" status="run" result="skipped">
    <skipped message="x"><![CDATA[x]]></skipped>
  </testcase>
  <testcase name="DISABLED_No" status="notrun" result="suppressed" />
</testsuite></testsuites>'
expect 1 1 2

# This script's output looks like XML.
ended //a:script_test PASSED '<testsuites><testsuite>
  <testcase name="script" status="run" duration="1" time="1"></testcase>
  <system-out><![CDATA[<testcase><failure/></testcase>]]></system-out>
</testsuite></testsuites>'
expect 1 0 0

# In the first, all cases passed and then it leaked; the second left nothing at
# all.
ended //a:leak_test FAILED \
  '<testsuite><testcase name="A" status="run" /></testsuite>'
ended //a:crash_test TIMEOUT ''
expect 1 2 0

# A test that was not built has no summary; a library is not a test.
configured //a:broken_test '"testSize":"SMALL"'
configured //a:library ''
ended //a:good_test PASSED \
  '<testsuite><testcase name="A" status="run" /></testsuite>'
expect 1 1 0

# A test that passes on the second attempt has passed, and is named.
ended //a:flaky_test FLAKY \
  '<testsuite><testcase name="A" status="run" /></testsuite>'
perl "${count}" "${events}" 2>&1 >/dev/null | grep -q '^FLAKY: //a:flaky_test '
expect 1 0 0
