#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs every check: installs what is missing, builds everything and meanwhile
# checks the style, runs all tests. The last line of the output is
#
#   N passed, M failed[, K skipped]
#
# where a check is one GoogleTest case, one test script or one style rule; a
# build that fails, and a test that ends without naming its failed case, count
# as one each. Exits with 0 only if nothing failed.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
cd "${ROOT}"
# shellcheck source=deploy/bazel.sh
. deploy/bazel.sh
# shellcheck source=deploy/read_options.sh
. deploy/read_options.sh

usage() {
  cat <<'USAGE'
usage: tests/run.sh [--config asan|ubsan|tsan] [--fuzz_seconds N] [TARGET...]

Installs what is missing, checks the style, builds everything and runs all
tests. TARGETs (as in //common/...) restrict building and testing to them.

  --config NAME     build and test with a sanitizer instead
  --fuzz_seconds N  time for each fuzzer (default: 10); 0 leaves them out
USAGE
}

passed=0
failed=0
skipped=0
bazel_pid=
server_was_up=false
scratch=

heading() { printf '\n== %s\n' "$*"; }

finish() {
  local code=$?
  trap - EXIT
  trap '' INT TERM
  if [[ -n "${bazel_pid}" ]]; then
    kill -TERM "${bazel_pid}" 2>/dev/null || true
    wait "${bazel_pid}" || true
  fi
  # These run beside the build, or are fuzzers.
  mapfile -t left < <(jobs -p)
  if ((${#left[@]} > 0)); then kill "${left[@]}" 2>/dev/null || true; fi
  if [[ "${server_was_up}" == false ]] && bazel_server_is_up "${ROOT}"; then
    "${BAZEL[@]}" shutdown >/dev/null 2>&1 || true
  fi
  if [[ -n "${scratch}" ]]; then rm -rf "${scratch}"; fi
  # A script that ends early has failed, too.
  if ((code != 0 && failed == 0)); then failed=1; fi
  printf '\n%d passed, %d failed' "${passed}" "${failed}"
  if ((skipped > 0)); then printf ', %d skipped' "${skipped}"; fi
  printf '\n'
  if ((failed > 0)); then exit 1; fi
  exit 0
}

# Runs Bazel so that a signal to this script reaches it: bash runs no trap while
# it waits for a foreground child.
bazel() {
  local code=0
  "${BAZEL[@]}" "$@" &
  bazel_pid=$!
  wait "${bazel_pid}" || code=$?
  bazel_pid=
  return "${code}"
}

# Adds the numbers of a file's lines "passed N", "failed N" and "skipped N" to
# the sums.
add_counts() {
  local kind count
  while read -r kind count; do
    case "${kind}" in
      passed) passed=$((passed + count)) ;;
      failed) failed=$((failed + count)) ;;
      skipped) skipped=$((skipped + count)) ;;
    esac
  done <"$1"
}

# begin NAME COMMAND...: runs the command beside the build.
declare -A begun
begin() {
  local name="$1"
  shift
  "$@" >"${scratch}/${name}.out" 2>"${scratch}/${name}.log" &
  begun["${name}"]=$!
}

check_style() {
  heading "style"
  wait "${begun[style]}" || true
  cat "${scratch}/style.out" "${scratch}/style.log"
  add_counts "${scratch}/style"
}

# If CUDA is installed, compiles the targets that need it, for one architecture,
# and runs their tests in the emulator of tests/cuda_emulator, which needs no
# GPU.
build_cuda() {
  local cuda targets tests
  mapfile -t targets < <("${BAZEL[@]}" query --noshow_progress \
    'attr(tags, "\bcuda\b", //...)' 2>/dev/null)
  if ((${#targets[@]} == 0)); then return; fi
  heading "CUDA targets"
  if [[ -v "begun[cuda_headers]" ]]; then
    wait "${begun[cuda_headers]}" || cat "${scratch}/cuda_headers.log"
  fi
  mapfile -t cuda < <(cuda_build_options 2>&1)
  if [[ "${cuda[0]}" != --* ]]; then
    echo "left out: ${cuda[*]}"
    skipped=$((skipped + 1))
  elif bazel build "${cuda[@]}" --define=cuda_architecture=80 \
    "${options[@]}" "${targets[@]}"; then
    passed=$((passed + 1))
    mapfile -t tests < <("${BAZEL[@]}" query --noshow_progress \
      'kind("(cc|sh)_test", attr(tags, "\bcuda\b", //...))' 2>/dev/null)
    heading "CUDA tests (emulated)"
    run_tests "${cuda[@]}" --config=cuda_emulated "${tests[@]}"
  else
    failed=$((failed + 1))
  fi
}

# fuzz FOLDER TARGET: runs the target's fuzzer, which is below FOLDER, and
# writes NAME.log.
fuzz() {
  local bin="$1" target="$2"
  local package="${target%:*}" name="${target#*:}"
  package="${package#//}"
  # New inputs go to the first directory, crashes beside the log.
  mkdir "${scratch}/${name}"
  exec "${bin}/${package}/${name}" -max_total_time="${fuzz_seconds}" \
    -max_len=8192 -rss_limit_mb=2048 -artifact_prefix="${scratch}/" \
    "${scratch}/${name}" "${package}/testdata/${name%_fuzzer}" \
    &>"${scratch}/${name}.log"
}

# Runs all fuzzers for a while, each from its committed corpus.
run_fuzzers() {
  local targets target name
  if ((fuzz_seconds == 0)); then return; fi
  heading "fuzzers (${fuzz_seconds} s each)"
  mapfile -t targets < <("${BAZEL[@]}" query --noshow_progress \
    'attr(tags, "\bfuzz\b", //...)' 2>/dev/null)
  if ! bazel build --config=fuzz "${options[@]}" "${targets[@]}"; then
    failed=$((failed + 1))
    return
  fi
  local bin
  bin="$("${BAZEL[@]}" info --config=fuzz bazel-bin 2>/dev/null)"
  local -A pids=()
  for target in "${targets[@]}"; do
    fuzz "${bin}" "${target}" &
    pids["${target}"]=$!
  done
  for target in "${targets[@]}"; do
    name="${scratch}/${target#*:}"
    if wait "${pids[${target}]}"; then
      printf '%s: %s\n' "${target}" "$(grep '^Done' "${name}.log")"
      passed=$((passed + 1))
    else
      printf 'FAILED   %s\n' "${target}"
      tail -n 60 "${name}.log"
      failed=$((failed + 1))
    fi
  done
}

# Lets the tests of PyTorch 2 run, where its packages can be had.
get_pytorch2() {
  local folder
  heading "PyTorch 2"
  if wait "${begun[pytorch2]}"; then
    folder="$(cat "${scratch}/pytorch2.out")"
    echo "${folder}"
    test_options+=("--test_env=CAUSEWAY_PYTORCH2=${folder}")
  else
    cat "${scratch}/pytorch2.log"
    echo "left out: the tests whose names end in _pytorch2, which are skipped"
  fi
}

build_and_test() {
  heading "build"
  if ! bazel build --keep_going "${options[@]}" -- "${targets[@]}"; then
    failed=$((failed + 1))
  fi
  if [[ -v "begun[style]" ]]; then check_style; fi
  if [[ -v "begun[pytorch2]" ]]; then get_pytorch2; fi
  heading "tests"
  run_tests -- "${targets[@]}"
}

# run_tests [OPTION...] TARGET...: runs tests and adds their cases to the sums.
run_tests() {
  local code=0 failed_before="${failed}"
  bazel test --keep_going "${options[@]}" "${test_options[@]}" \
    --build_event_json_file="${scratch}/events.json" "$@" || code=$?
  perl tests/count_results.pl "${scratch}/events.json" >"${scratch}/tests" ||
    failed=$((failed + 1))
  add_counts "${scratch}/tests"
  if ((code != 0 && failed == failed_before)); then failed=$((failed + 1)); fi
}

config=
fuzz_seconds=10
read_options "" "config fuzz_seconds" "$@"
if [[ ! "${fuzz_seconds}" =~ ^[0-9]{1,6}$ ]]; then
  usage >&2
  exit 2
fi
targets=("${rest[@]}")

mapfile -t options < <(bazel_display_options)
# Real processes on saturated cores fail now and then without a fault of the
# change at hand. Such a test runs once more, and the output names it.
test_options=(--test_output=errors --test_summary=terse
  --flaky_test_attempts=2)
case "${config}" in
  "") ;;
  ubsan) options+=("--config=ubsan") ;;
  # Paths are absolute, because tests run in directories of their own.
  asan)
    options+=("--config=asan")
    test_options+=("--test_env=LSAN_OPTIONS=$(
      printf '%s:' "suppressions=${ROOT}/third_party/lsan.supp" \
        print_suppressions=0
    )")
    ;;
  tsan)
    options+=("--config=tsan")
    test_options+=("--test_env=TSAN_OPTIONS=$(
      printf '%s:' "suppressions=${ROOT}/third_party/tsan.supp" \
        ignore_noninstrumented_modules=1 halt_on_error=1
    )")
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac

scratch="$(mktemp -d)"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if bazel_server_is_up "${ROOT}"; then server_was_up=true; fi

heading "packages"
deploy/install_deps.sh build test

if [[ -z "${config}" ]]; then
  begin pytorch2 tests/pytorch/environment.sh
  if ((${#targets[@]} == 0)); then
    begin style tests/lint/style.sh --counts "${scratch}/style" "${ROOT}"
    if [[ -x /usr/local/cuda/bin/nvcc ]]; then
      begin cuda_headers deploy/cuda_headers.sh
    fi
  fi
fi
if ((${#targets[@]} == 0)); then targets=(//...); fi
build_and_test
if [[ -z "${config}" && "${targets[*]}" == //... ]]; then
  build_cuda
  run_fuzzers
fi
