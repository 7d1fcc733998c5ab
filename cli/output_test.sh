#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# The program fails if its output cannot be written, unless the reader has gone.
set -euo pipefail

# shellcheck source=tests/testing.sh
source tests/testing.sh

work="${TEST_TMPDIR}"
readonly work

rc=0
cli/causeway --help >/dev/full 2>"${work}/errors" || rc=$?
[[ "${rc}" -eq 1 ]] || fail "a full disk: exit code ${rc}"
grep -q "cannot write the output" "${work}/errors" || fail "no message"

# A pipe whose last reader has gone.
mkfifo "${work}/pipe"
exec 3<>"${work}/pipe"
exec 4>"${work}/pipe"
exec 3>&-
cli/causeway --help >&4 2>"${work}/errors" || fail "a pipe: exit code $?"
[[ ! -s "${work}/errors" ]] || fail "said: $(cat "${work}/errors")"
