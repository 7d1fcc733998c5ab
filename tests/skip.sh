# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# For tests that source this file.

# skip REASON: ends the test, which counts as skipped in tests/run.sh, since this
# machine lacks something.
skip() {
  printf 'skipped: %s\n' "$*"
  if [[ -n "${XML_OUTPUT_FILE:-}" ]]; then
    printf '<testsuites><testsuite name="%s"><testcase name="%s">%s\n' \
      "${TEST_TARGET:-}" "${TEST_TARGET:-}" \
      '<skipped/></testcase></testsuite></testsuites>' >"${XML_OUTPUT_FILE}"
  fi
  exit 0
}

# need_root_and COMMAND...: skips the test unless root runs it and has the
# commands.
need_root_and() {
  local name
  PATH+=:/usr/sbin:/sbin
  if [[ "$(id -u)" -ne 0 ]]; then skip "needs root"; fi
  for name in "$@"; do
    command -v "${name}" >/dev/null ||
      skip "there is no ${name} (deploy/install_deps.sh test)"
  done
}
