#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# A small tree that keeps every rule passes style.sh, and breaking one rule
# makes exactly that rule fail.

set -euo pipefail

style="$(cd "$(dirname "$0")" && pwd)/style.sh"
tree="$(mktemp -d -p "${TEST_TMPDIR:-/tmp}")"
trap 'rm -rf "${tree}"' EXIT

readonly LICENSE='// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0'

# shellcheck disable=SC2016  # the scripts in the tree expand it, not we
make_good_tree() {
  rm -rf "${tree:?}"/*
  mkdir "${tree}/common"
  printf '%s\n' 'BasedOnStyle: Google' >"${tree}/.clang-format"
  printf '%s\n' "${LICENSE}" '#ifndef COMMON_A_H_' '#define COMMON_A_H_' \
    'int A();' '#endif  // COMMON_A_H_' >"${tree}/common/a.h"
  printf '%s\n' "${LICENSE}" '#include "common/a.h"' '' \
    'int A() { return 1; }' >"${tree}/common/a.cc"
  printf '%s\n' 'cc_library(name = "a", srcs = ["a.cc"], hdrs = ["a.h"])' \
    >"${tree}/common/BUILD"
  printf '%s\n' '[code](common/a.h) [web](https://example.org/x)' \
    >"${tree}/README.md"
  printf '%s\n' '#!/bin/bash' "${LICENSE//\/\//#}" 'echo "${HOME}"' \
    >"${tree}/run.sh"
}

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

# Expects exactly the rule whose name contains $1 to fail. Where the rule's tool
# is missing it is skipped, and nothing fails.
expect_failure() {
  local report failures
  if report="$("${style}" "${tree}")"; then
    grep -q "^skipped .*$1" <<<"${report}" ||
      fail "nothing failed, but '$1' is broken:" "${report}"
  else
    failures="$(grep '^FAILED' <<<"${report}")"
    if [[ "$(wc -l <<<"${failures}")" -ne 1 || "${failures}" != *"$1"* ]]; then
      fail "expected just '$1' to fail:" "${report}"
    fi
  fi
  make_good_tree
}

# Adds comments that the rules about comments and paths must let pass.
add_good_comments() {
  printf '%s\n' '' '// One thing, and the rest' '// Of it.' 'int b = 1;' '' \
    '// Of course.' 'int c = 1;  // A count' '            // Of things.' \
    >>"${tree}/common/a.cc"
  # shellcheck disable=SC2016  # these are quotes of Markdown
  printf '%s\n' '`common/a` `common/a.{h,cc}` `common/` common/a.cc, `a/b`' \
    'https://example.org/common/b.h /srv/common/b.h common/b' \
    '`common/NAME.cc` `common/...`' >>"${tree}/README.md"
}

make_good_tree
add_good_comments
"${style}" --counts "${tree}.counts" "${tree}" >/dev/null ||
  fail "the good tree does not pass"
grep -qx 'failed 0' "${tree}.counts" || fail "counts: $(<"${tree}.counts")"

sed -i 's/{ return 1; }/{return 1;}/' "${tree}/common/a.cc"
expect_failure "clang-format"

printf '// %081d\n' 0 >>"${tree}/common/a.cc"
expect_failure "80 columns"

printf '%s\n' "${LICENSE//\/\//#}" "$(printf '# %081d' 0)" >"${tree}/a.py"
expect_failure "80 columns"

printf '\n%.0s' {1..601} >>"${tree}/common/BUILD"
expect_failure "600 lines"

sed -i 1d "${tree}/common/a.cc"
expect_failure "license lines"

printf '// TO%s: more.\n' DO >>"${tree}/common/a.cc"
expect_failure "unfinished work"

printf 'See /ho%s/me/notes.\n' me >>"${tree}/README.md"
expect_failure "path of one machine"

sed -i 's/COMMON_A_H_/A_H_/' "${tree}/common/a.h"
expect_failure "include guards"

sed -i 's/"a.cc"//' "${tree}/common/BUILD"
expect_failure "in a target"

printf '#include "quantization/b.h"\n' >>"${tree}/common/a.cc"
expect_failure "includes point downward"

mkdir -p "${tree}/server/rules"
sed '/#include/s/.*/#include "worker\/data\/b.h"/' "${tree}/common/a.cc" \
  >"${tree}/server/rules/a.cc"
cp "${tree}/common/BUILD" "${tree}/server/rules/"
expect_failure "includes point downward"

printf 'void B() { absl::%s(); }\n' Now >>"${tree}/common/a.cc"
expect_failure "clocks and chance"

printf '[gone](gone.md)\n' >>"${tree}/README.md"
expect_failure "links between documents"

for comment in '// Of each of them.' 'int b = 1;  // Those of b.' \
  $'//\n// That which is left.'; do
  printf '%s\n' "${comment}" >>"${tree}/common/a.cc"
  expect_failure "comments open"
done
printf '#\n# Of the run.\n' >>"${tree}/run.sh"
expect_failure "comments open"

# shellcheck disable=SC2016  # these are quotes of Markdown
for name in '`common/b`' '`common/a/b`' common/b.h '`common/a.{h,cu}`' \
  '`common/b/`'; do
  printf 'See %s.\n' "${name}" >>"${tree}/README.md"
  expect_failure "paths that comments and documents name"
done
printf '// See common/b.cc.\n' >>"${tree}/common/a.cc"
expect_failure "paths that comments and documents name"
printf '# See common/b.cc.\n' >>"${tree}/common/BUILD"
expect_failure "paths that comments and documents name"

# shellcheck disable=SC2016
printf 'echo ${1}\n' >>"${tree}/run.sh"
expect_failure "shellcheck"

# A tree without any C++ is a tree, too.
rm -r "${tree}/common"
sed -i 's/\[code\][^ ]*//' "${tree}/README.md"
"${style}" "${tree}" >/dev/null || fail "a tree without C++ does not pass"
