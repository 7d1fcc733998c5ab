# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Shared by tests in shell, which source this file.

# fail REASON: ends the test as failed.
fail() {
  printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
  exit 1
}

# eventually COMMAND...: waits for a command to succeed.
eventually() {
  local deadline=$((SECONDS + 120))
  until "$@"; do
    if ((SECONDS > deadline)); then fail "never: $*"; fi
    sleep 0.1
  done
}

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
  PATH+=:/usr/sbin:/sbin
  if [[ "$(id -u)" -ne 0 ]]; then skip "needs root"; fi
  need "$@"
}

# need COMMAND...: skips the test unless the commands are there.
need() {
  local name
  for name in "$@"; do
    command -v "${name}" >/dev/null ||
      skip "there is no ${name} (deploy/install_deps.sh test)"
  done
}
