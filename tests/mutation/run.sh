#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Plants one bug at a time and runs the tests that should notice it. The bugs
# are mutants/NAME.patch. The first line of a patch names those tests, the
# second says what is wrong with the bug.
#
# Patches are applied to a copy of the source tree, never to the tree itself.

set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
ROOT="$(cd "${HERE}/../.." && pwd -P)"
readonly HERE ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"

usage() {
  cat <<'USAGE'
usage: tests/mutation/run.sh [--json FILE] [--only NAME]... [--seconds N]
                             [--work DIR] [--jobs N]

Prints one line per mutant: noticed, SURVIVED or UNDECIDED. A mutant is
undecided if it does not apply, does not build, or takes too long. Exits with 0
if every mutant was noticed.

  --json FILE    write `mutants`, `noticed`, `survivors` and `undecided`, and
                 for every mutant what noticed it
  --only NAME    this mutant only; may be repeated
  --seconds N    time for building and testing one mutant (default: 900)
  --work DIR     keeps the copy of the tree and the results (default:
                 ~/.cache/causeway-mutation); an interrupted run continues
                 where it was, as long as the tree is the same
  --jobs N       as Bazel's --jobs
USAGE
}

json=
only=()
seconds=900
work="${HOME}/.cache/causeway-mutation"
bazel_options=(--symlink_prefix=/ --curses=no --color=no --noshow_progress
  --build_tests_only --test_output=errors --test_timeout=120)
while (($#)); do
  case "$1" in
    --json | --only | --seconds | --work | --jobs)
      if (($# < 2)); then
        usage >&2
        exit 2
      fi
      case "$1" in
        --json) json="$(realpath -m "$2")" ;;
        --only) only+=("$2") ;;
        --seconds) seconds="$2" ;;
        --work) work="$(realpath -m "$2")" ;;
        --jobs) bazel_options+=("--jobs=$2") ;;
      esac
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  shift
done

readonly TREE="${work}/tree"
cd "${ROOT}"

# Prints the files of the source tree, without the mutants.
tree_files() {
  git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do
      if [[ -f "${file}" && "${file}" != tests/mutation/* ]]; then
        printf '%s\0' "${file}"
      fi
    done
}

copy_tree() {
  rm -rf "${TREE}"
  mkdir -p "${TREE}"
  tree_files | tar -c --null -T - | tar -x -C "${TREE}"
  if [[ -f user.bazelrc ]]; then
    cp user.bazelrc "${TREE}"
  else
    # With a cache, going back to the original compiles nothing.
    echo "build --disk_cache=${work}/compiled" >"${TREE}/user.bazelrc"
  fi
}

# run_tests SECONDS LOG ARGUMENT...: runs `bazel test` in the copy, in limited
# time. It runs in the background, so that a signal to this script reaches it.
# Bazel's server must not inherit the lock.
run_tests() {
  local limit="$1" log="$2" code=0
  shift 2
  (cd "${TREE}" && exec timeout --kill-after=30 "${limit}" "${BAZEL[@]}" \
    test "${bazel_options[@]}" "$@") &>"${log}" 9>&- &
  tests_pid=$!
  wait "${tests_pid}" || code=$?
  tests_pid=
  return "${code}"
}

targets_of() { head -n 1 "${HERE}/mutants/$1.patch"; }

# Plants one mutant. Writes the result, and the targets that noticed it or why
# nobody could tell, to $2.
try_mutant() {
  local name="$1" result="$2" log="$2.log" code=0 targets
  local patch="${HERE}/mutants/${name}.patch"
  if ! (cd "${TREE}" && patch -p1 --forward --no-backup-if-mismatch \
    --reject-file=- <"${patch}") &>"${log}"; then
    # A part of its files may have been patched.
    copy_tree
    echo "UNDECIDED does not apply" >"${result}"
    return
  fi
  read -ra targets < <(targets_of "${name}")
  run_tests "${seconds}" "${log}" --notest_keep_going "${targets[@]}" || code=$?
  (cd "${TREE}" && patch -p1 --reverse --no-backup-if-mismatch <"${patch}") \
    >/dev/null
  # The exit codes are those of Bazel's test command.
  case "${code}" in
    0) echo SURVIVED >"${result}" ;;
    3) echo "noticed $(grep -oE '^//[^ ]+ +(FAILED|TIMEOUT)' "${log}" |
      cut -d' ' -f1 | sort -u | xargs)" >"${result}" ;;
    1) echo "UNDECIDED does not build" >"${result}" ;;
    124 | 137) echo "UNDECIDED takes more than ${seconds} s" >"${result}" ;;
    *)
      echo "the tests of ${name} could not be run; see ${log}" >&2
      exit 1
      ;;
  esac
}

# Prints the names of the mutants whose result begins with $1, as a list in
# JSON.
json_names() {
  local name list=()
  for name in "${names[@]}"; do
    if [[ "${outcomes[${name}]}" == "$1"* ]]; then list+=("\"${name}\""); fi
  done
  local IFS=,
  printf '[%s]' "${list[*]}"
}

count_outcomes() {
  printf '%s\n' "${outcomes[@]}" | grep -c "^$1" || true
}

write_json() {
  local name separator=
  printf '{\n  "mutants": %d,\n  "noticed": %d,\n' "${#names[@]}" \
    "$(count_outcomes noticed)"
  printf '  "survivors": %s,\n' "$(json_names SURVIVED)"
  printf '  "undecided": %s,\n  "results": {' "$(json_names UNDECIDED)"
  for name in "${names[@]}"; do
    printf '%s\n    "%s": "%s"' "${separator}" "${name}" "${outcomes[${name}]}"
    separator=,
  done
  printf '\n  }\n}\n'
}

finish() {
  local code=$?
  trap - EXIT
  trap '' INT TERM
  if [[ -n "${tests_pid}" ]]; then
    kill -TERM "${tests_pid}" 2>/dev/null || true
    wait "${tests_pid}" || true
  fi
  if [[ "${server_stays}" == false ]] && bazel_server_is_up "${TREE}"; then
    (cd "${TREE}" && "${BAZEL[@]}" shutdown) &>/dev/null || true
  fi
  exit "${code}"
}

names=("${only[@]}")
if ((${#names[@]} == 0)); then
  mapfile -t names < <(cd "${HERE}/mutants" && printf '%s\n' *.patch |
    sed 's/\.patch$//')
fi
all_targets=()
for name in "${names[@]}"; do
  if [[ ! -f "${HERE}/mutants/${name}.patch" ]]; then
    echo "there is no mutants/${name}.patch" >&2
    exit 2
  fi
  read -ra targets < <(targets_of "${name}")
  all_targets+=("${targets[@]}")
done
mapfile -t all_targets < <(printf '%s\n' "${all_targets[@]}" | sort -u)

mkdir -p "${work}"
exec 9>"${work}/lock"
if ! flock --nonblock 9; then
  echo "${work} is in use by another run; name another --work" >&2
  exit 1
fi
copy_tree
results="${work}/results-$(tree_files | xargs -0 sha256sum | sha256sum |
  head -c 16)"
mkdir -p "${results}"
# The results of other trees are of no more use.
find "${work}" -maxdepth 1 -name 'results-*' -not -path "${results}" \
  -exec rm -rf {} +
tests_pid=
server_stays=false
if bazel_server_is_up "${TREE}"; then server_stays=true; fi
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

declare -A outcomes=()
checked=false
for name in "${names[@]}"; do
  result="${results}/${name}-$(sha256sum "${HERE}/mutants/${name}.patch" |
    head -c 16)"
  if [[ ! -s "${result}" ]]; then
    if [[ "${checked}" == false ]]; then
      if ! run_tests 3600 "${results}/sound.log" "${all_targets[@]}"; then
        cat "${results}/sound.log"
        echo "the tests fail without a mutant" >&2
        exit 1
      fi
      checked=true
    fi
    try_mutant "${name}" "${result}"
  fi
  outcomes["${name}"]="$(cat "${result}")"
  printf '%-40s %s\n' "${name}" "${outcomes[${name}]}"
done

noticed="$(count_outcomes noticed)"
printf '\n%d of %d mutants noticed\n' "${noticed}" "${#names[@]}"
if [[ -n "${json}" ]]; then write_json >"${json}"; fi
((noticed == ${#names[@]}))
