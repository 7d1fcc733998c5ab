#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs clang-tidy (.clang-tidy) over all C++ files, or over the given ones. It
# takes some seconds a file, so it is not part of tests/run.sh.

set -euo pipefail

if [[ "$*" == -h || "$*" == --help ]]; then
  echo "usage: tests/tidy.sh [FILE.cc...]"
  exit
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/bazel.sh
. deploy/bazel.sh

deploy/install_deps.sh build tidy

# Bazel writes the generated headers there.
"${BAZEL[@]}" build --symlink_prefix=/ --noshow_progress //proto/...
generated="$("${BAZEL[@]}" info bazel-bin)"

if (($#)); then
  files=("$@")
else
  mapfile -t files < <(find . -path './bazel-*' -prune -o -name '*.cc' -print |
    sed 's|^\./||' | sort)
fi
printf '%s\n' "${files[@]}" |
  xargs -P "$(nproc)" -I '{}' clang-tidy --quiet '{}' -- \
    -std=c++20 -I. -isystem "${generated}" 2>&1 |
  grep -vE '^[0-9]+ warnings? (generated|treated as error)'
exit "${PIPESTATUS[1]}"
