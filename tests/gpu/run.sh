#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs everything that needs a GPU, on the machine that has one: tests of the
# CUDA kernels against the CPU, training (training.sh), then benchmarks. Needs
# bash, find, awk and the programs, which may lie in any folder, such as an
# unpacked archive of deploy/bundle.sh --tests, but no compiler and no CUDA
# toolkit.

set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tests/gpu/run.sh [--json FILE] [--no-benchmarks] [--require_gpu]
                        [--only PATTERN] [--timeout SECONDS] [--sanitizer]
                        [DIRECTORY]

Runs all programs in DIRECTORY whose names match *cuda*_test and
*cuda*_benchmark. Also runs training.sh and streaming.sh if causeway-coordinator
and causeway-worker are there, and, if python3 has PyTorch for the GPU, islands
of it and pytorch.py, which does the same work as a benchmark. Prints a table
and, as its last line,

  N passed, M failed[, K skipped]

Exits with 1 if a check or a benchmark failed. A machine without a GPU skips
what needs one; on one with a GPU nothing may be skipped for want of it, and the
reason is printed: no device is visible, or the driver is too old. Without
DIRECTORY the programs are those of the unpacked archive that this script is
part of; elsewhere the script builds them, with Bazel and nvcc.

  --json FILE      write the results and all figures to FILE
  --no-benchmarks  checks only
  --require_gpu    there must be a GPU, even if none is found here
  --only PATTERN   only what has such a name: a program's, training,
                   pytorch_islands, pytorch or streaming; * stands for anything
  --timeout SECONDS  end a program that takes longer, which has then failed
                   (default: 600)
  --sanitizer      run the programs *cuda*_test, and nothing else, in NVIDIA's
                   compute-sanitizer, which finds wrong accesses to memory
USAGE
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly root
# shellcheck source=deploy/read_options.sh
. "${root}/deploy/read_options.sh"

json=
no_benchmarks=false
require_gpu=false
only='*'
timeout=600
sanitizer=false
read_options "no-benchmarks require_gpu sanitizer" "json only timeout" "$@"
directory="${rest[0]:-}"
gpu="${require_gpu}"
if compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]]; then
  gpu=true
fi
checker=()
if "${sanitizer}"; then
  checker=("$(PATH="${PATH}:/usr/local/cuda/bin" command -v compute-sanitizer)") || {
    echo 'there is no compute-sanitizer here; it comes with the CUDA toolkit' >&2
    exit 2
  }
  checker+=(--tool memcheck --error-exitcode 1)
fi

# Prints the folder where the programs are built.
build() {
  local options targets
  cd "${root}"
  # shellcheck source=deploy/bazel.sh
  . deploy/bazel.sh
  mapfile -t targets < <(bazel_gpu_programs)
  mapfile -t options < <(cuda_build_options)
  "${BAZEL[@]}" build "${options[@]}" --symlink_prefix=/ "${targets[@]}" \
    //server:causeway-coordinator //worker:causeway-worker \
    //worker/embedding:libcauseway.so >&2
  "${BAZEL[@]}" info "${options[@]}" bazel-bin
}

if [[ -z "${directory}" ]]; then
  if [[ -d "${root}/bin" ]]; then directory="${root}"; else directory="$(build)"; fi
fi

# Prints the programs whose names match $1, in the order of their names.
programs() {
  find "${directory}" -type f -perm -u+x -name "$1" | sort
}

# Returns whether NAME should run.
is_selected() {
  # shellcheck disable=SC2053  # it is a pattern
  [[ "$1" == ${only} ]]
}

# limited COMMAND...: runs it, and ends it after the time limit, with code 124.
limited() {
  local code=0
  timeout --kill-after=10 "${timeout}" "$@" || code=$?
  if ((code == 124 || code == 137)); then
    echo "ended after ${timeout} s, the limit"
  fi
  return "${code}"
}

scratch="$(mktemp -d)"
readonly scratch
bin=
trap 'rm -rf "${scratch}"' EXIT

passed=0
failed=0
skipped=0

# Prints how many cases are "$2" according to the GoogleTest output $1.
cases() {
  sed -nE "s/^\[ *$2 *\] ([0-9]+) tests?[,.].*/\1/p" "$1" | tail -n 1
}

run_check() {
  local name program output code=0 ran_well ran_badly not_run missing=0
  name="$(basename "$1")"
  if ! is_selected "${name}"; then return; fi
  program="$(realpath "$1")"
  output="${scratch}/output"
  # Tests read tests/reference from where they run.
  (cd "${root}" && limited "${checker[@]}" "${program}") >"${output}" 2>&1 || code=$?
  ran_well="$(cases "${output}" PASSED)"
  ran_badly="$(cases "${output}" FAILED)"
  not_run="$(cases "${output}" SKIPPED)"
  # A program that ends without a summary, or with an error in spite of it, has
  # failed.
  if ((code != 0 && ${ran_badly:-0} == 0)); then ran_badly=1; fi
  if ((${ran_badly:-0} > 0)); then cat "${output}"; fi
  if [[ "${gpu}" == true ]]; then
    # Some tests are for machines without a device.
    missing=$((${not_run:-0} - $(grep -cx 'there is a device' "${output}" || true)))
    grep -A 1 ': Skipped$' "${output}" | grep -vE ': Skipped$|^--|^there is a device$' |
      sort -u | sed "s/^/${name}: skipped on a machine with a GPU: /" || true
    ran_badly=$((${ran_badly:-0} + missing))
    not_run=$((${not_run:-0} - missing))
  fi
  printf '%-28s %6d passed %6d failed %6d skipped\n' "${name}" \
    "${ran_well:-0}" "${ran_badly:-0}" "${not_run:-0}"
  passed=$((passed + ${ran_well:-0}))
  failed=$((failed + ${ran_badly:-0}))
  skipped=$((skipped + ${not_run:-0}))
  printf '%s{"name": "%s", "passed": %d, "failed": %d, "skipped": %d}' \
    "$(separator_after "${scratch}/checks")" "${name}" "${ran_well:-0}" "${ran_badly:-0}" \
    "${not_run:-0}" >>"${scratch}/checks"
}

# attempt COMMAND...: runs it and sets `code` to its exit code. Where there is a
# GPU, a command that skips its work has failed.
attempt() {
  code=0
  "$@" || code=$?
  if ((code == 77)) && [[ "${gpu}" == true ]]; then
    echo 'skipped on a machine with a GPU'
    code=1
  fi
}

# count CODE: counts a check or benchmark that has ended with this code.
count() {
  case "$1" in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
}

# run_benchmark NAME COMMAND...: runs COMMAND --json FILE, which writes its
# figures there.
run_benchmark() {
  local name="$1" separator code
  shift
  separator="$(separator_after "${scratch}/benchmarks")"
  printf '\n%s\n' "${name}"
  attempt "$@" --json "${scratch}/figures"
  count "${code}"
  # A failed benchmark may have figures of parts that succeeded.
  if [[ -s "${scratch}/figures" ]]; then
    {
      printf '%s"%s": ' "${separator}" "${name}"
      cat "${scratch}/figures"
    } >>"${scratch}/benchmarks"
  fi
}

# After our training, PyTorch does the same work, if it is installed.
run_benchmarks() {
  local program name
  while IFS= read -r program; do
    name="$(basename "${program}")"
    if ! is_selected "${name}"; then continue; fi
    run_benchmark "${name}" limited "${program}"
    if [[ "${name}" == ops_cuda_benchmark && -s "${scratch}/figures" ]]; then
      mv "${scratch}/figures" "${scratch}/ours"
      if ! python3 -c 'import torch' 2>/dev/null; then
        echo "no PyTorch here to compare with"
      elif is_selected pytorch; then
        run_benchmark pytorch limited python3 "${root}/tests/gpu/pytorch.py" "${scratch}/ours"
      fi
    fi
    rm -f "${scratch}/figures"
  done < <(programs '*cuda*_benchmark')
  if [[ -n "${bin}" ]] && is_selected streaming; then
    run_benchmark streaming streaming
  fi
}

streaming() {
  limited "${root}/tests/gpu/streaming.sh" "$@" "${bin}" "${root}"/docs/*.md
}

# Makes one folder with coordinator and worker, which may lie in different ones.
link_programs() {
  local program
  bin="${scratch}/bin"
  mkdir "${bin}"
  for program in causeway-coordinator causeway-worker; do
    program="$(programs "${program}" | head -n 1)"
    if [[ -z "${program}" ]]; then
      bin=
      return
    fi
    # A copy would not find its libraries, which it looks for beside itself.
    printf '#!/bin/sh\nexec "%s" "$@"\n' "${program}" \
      >"${bin}/$(basename "${program}")"
  done
  chmod +x "${bin}"/*
}

# run_whole_check NAME COMMAND...: runs a check that is one test.
run_whole_check() {
  local name="$1" code
  shift
  if ! is_selected "${name}"; then return; fi
  attempt limited "$@" >"${scratch}/output" 2>&1
  printf '%s: ' "${name}"
  cat "${scratch}/output"
  count "${code}"
  printf '%s{"name": "%s", "passed": %d, "failed": %d, "skipped": %d}' \
    "$(separator_after "${scratch}/checks")" "${name}" $((code == 0)) \
    $((code != 0 && code != 77)) $((code == 77)) >>"${scratch}/checks"
}

# Needs the library and the package, and PyTorch for the GPU.
run_pytorch_islands() {
  local library
  library="$(programs libcauseway.so | head -n 1)"
  if [[ -z "${library}" ]]; then return; fi
  if ! python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "no PyTorch for a GPU here: its islands are not tested"
    return
  fi
  run_whole_check pytorch_islands env PYTHONPATH="${root}/python" \
    CAUSEWAY_LIBRARY="${library}" \
    CAUSEWAY_COORDINATOR_PROGRAM="${bin}/causeway-coordinator" \
    python3 "${root}/tests/pytorch/cuda_test.py"
}

# Prints the separator between the last list entry in file $1 and the next one.
separator_after() {
  if [[ -s "$1" ]]; then printf ', '; fi
}

if [[ "${gpu}" == false ]]; then
  echo "no GPU here (no /dev/nvidia0): what needs one is skipped"
fi
touch "${scratch}/checks" "${scratch}/benchmarks"
while IFS= read -r program; do
  run_check "${program}"
done < <(programs '*cuda*_test')
if ! "${sanitizer}"; then link_programs; fi
if [[ -n "${bin}" ]]; then
  run_whole_check training "${root}/tests/gpu/training.sh" "${bin}" "${root}"/docs/*.md
  run_pytorch_islands
fi
if ! "${no_benchmarks}" && ! "${sanitizer}"; then run_benchmarks; fi

if [[ -n "${json}" ]]; then
  printf '{"passed": %d, "failed": %d, "skipped": %d,\n"checks": [%s],\n"benchmarks": {%s}}\n' \
    "${passed}" "${failed}" "${skipped}" "$(<"${scratch}/checks")" \
    "$(<"${scratch}/benchmarks")" >"${json}"
fi

if ((passed + failed + skipped == 0)); then
  echo "${directory}: no programs to run" >&2
  exit 2
fi
printf '\n%d passed, %d failed' "${passed}" "${failed}"
if ((skipped > 0)); then printf ', %d skipped' "${skipped}"; fi
printf '\n'
if ((failed > 0)); then exit 1; fi
