#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes one archive with all programs and the libraries they need, for machines
# without Debian's packages.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/libraries.sh
. "${ROOT}/deploy/libraries.sh"

usage() {
  cat <<'USAGE'
usage: deploy/bundle.sh [--cpu_only] [--tests] [--check] [--bin DIRECTORY] [FILE]

Writes FILE (default: causeway-linux-x86_64.tar.gz). Unpacked anywhere, its
programs run on any x86-64 Linux with glibc 2.36 or newer:

  causeway/bin    causeway, causeway-coordinator, causeway-worker
  causeway/lib    shared libraries, found from bin
  causeway/docs, causeway/tests         tests/gpu/run.sh is for machines with GPUs

With nvcc, the worker is built for GPUs, too. NVIDIA's driver, cuBLAS and, for
several GPUs, NCCL are taken from the machine where it runs; without them the
worker trains on the CPU.

  --cpu_only       build without CUDA even if nvcc is there
  --tests          add the tests and benchmarks that need a GPU
  --check          run the programs with no other files than the bundle's and
                   glibc's; needs root, for chroot
  --bin DIRECTORY  take the programs from there instead of building them
USAGE
}

fail() {
  printf 'bundle: error: %s\n' "$*" >&2
  exit 1
}

cuda=true
tests=false
check=false
bin=
archive=
while (($#)); do
  case "$1" in
    --cpu_only) cuda=false ;;
    --tests) tests=true ;;
    --check) check=true ;;
    --bin)
      bin="${2:?--bin needs a directory}"
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*)
      usage >&2
      exit 2
      ;;
    *) archive="$1" ;;
  esac
  shift
done
archive="$(realpath -m "${archive:-causeway-linux-x86_64.tar.gz}")"
if ! [[ -x /usr/local/cuda/bin/nvcc ]]; then cuda=false; fi
require_tools

readonly PROGRAMS=(server/causeway-coordinator worker/causeway-worker
  cli/causeway)

cd "${ROOT}"
if "${cuda}"; then options=(--config=cuda); else options=(); fi
labels=()
for program in "${PROGRAMS[@]}"; do labels+=("//${program/\//:}"); done
if "${tests}" && "${cuda}"; then
  mapfile -t test_labels < <(bazel_gpu_programs)
else
  test_labels=()
fi
if [[ -z "${bin}" ]]; then
  bin="$(bazel_build_once "${ROOT}" "${options[@]}" "${labels[@]}" \
    "${test_labels[@]}")"
fi

stage="$(mktemp -d)"
readonly stage
trap 'rm -rf "${stage}"' EXIT
readonly top="${stage}/causeway"
mkdir -p "${top}/bin" "${top}/lib" "${top}/tests/gpu" "${top}/docs"

readonly libraries="${top}/lib"

for program in "${PROGRAMS[@]}"; do
  add_file "${bin}/${program}" "${top}/bin"
done
for label in "${test_labels[@]}"; do
  path="${label#//}"
  add_file "${bin}/${path/://}" "${top}/tests/gpu"
done
install -m 755 tests/gpu/{run,training,streaming}.sh "${top}/tests/gpu"
install -m 644 tests/gpu/{island_runs.sh,pytorch.py} "${top}/tests/gpu"
install -D -m 644 -t "${top}/tests/reference" tests/reference/llama_golden.txt
install -m 644 docs/*.md "${top}/docs"
install -m 644 LICENSE README.md "${top}"

printf 'bundle: needs glibc %s\n' "$(newest_glibc "${top}"/bin/* "${top}"/lib/*)"

# Runs the programs in an environment without anything else.
run_alone() {
  local file program
  local alone="${stage}/alone"
  mkdir -p "${alone}/lib64" "${alone}/lib/x86_64-linux-gnu" "${alone}/tmp"
  cp -L /lib64/ld-linux-x86-64.so.2 "${alone}/lib64"
  for file in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 \
    libresolv.so.2; do
    cp -L "/lib/x86_64-linux-gnu/${file}" "${alone}/lib/x86_64-linux-gnu"
  done
  cp -a "${top}" "${alone}/causeway"
  for program in "${PROGRAMS[@]}"; do
    program="/causeway/bin/$(basename "${program}")"
    env -i "$(command -v chroot)" "${alone}" "${program}" --help >"${stage}/output" 2>&1 ||
      true
    # absl's --help exits with 1.
    grep -qiE 'causeway|usage' "${stage}/output" || {
      cat "${stage}/output" >&2
      fail "${program} does not run by itself"
    }
  done
  printf 'bundle: the programs run with glibc and the bundle alone\n'
}
if "${check}"; then run_alone; fi

tar -C "${stage}" --owner=0 --group=0 --sort=name -cf - causeway |
  gzip -9 >"${archive}"
printf 'bundle: %s, %d bytes\n' "${archive}" "$(stat -c %s "${archive}")"
