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
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"
# shellcheck source=deploy/libraries.sh
. "${ROOT}/deploy/libraries.sh"

usage() {
  cat <<'USAGE'
usage: deploy/bundle.sh [--cpu_only] [--with_cuda_libraries] [--tests] [--check]
                        [--bin DIRECTORY] [FILE]

Writes FILE (default: causeway-linux-x86_64.tar.gz). Unpacked anywhere, its
programs run on x86-64 Linux with glibc 2.34 or newer and with its libstdc++, of
GCC 11 or newer:

  causeway/bin    causeway, causeway-coordinator, causeway-worker, and a helper
                  that reads SentencePiece models
  causeway/lib    shared libraries, found from bin
  causeway/lib/gcc      libstdc++ and libgcc, for hosts without them: they need
                        LD_LIBRARY_PATH=causeway/lib/gcc, and glibc 2.36
  causeway/licenses     what the libraries' packages say about copyright
  causeway/docs
  causeway/deploy       for a first run: its configuration, alerts, a dashboard,
                        a job for Slurm
  causeway/tests        tests/gpu/run.sh is for machines with GPUs
  causeway/python       with --tests: the package for PyTorch, for tests of it

With nvcc, the worker is built for GPUs, too. NVIDIA's driver, cuBLAS and, for
several GPUs, NCCL are taken from the machine where it runs, unless they are in
the archive; without them the worker trains on the CPU.

  --cpu_only       build without CUDA even if it is there
  --with_cuda_libraries  add cuBLAS and NCCL, about 750 MB, whose licenses apply
  --tests          add the tests and benchmarks that need a GPU
  --check          run the programs with no other files than the bundle's and
                   glibc's; needs root, for chroot
  --bin DIRECTORY  take the programs from there, in folders as in bazel-bin,
                   instead of building them
USAGE
}

fail() {
  printf 'bundle: error: %s\n' "$*" >&2
  exit 1
}

cpu_only=false
with_cuda_libraries=false
tests=false
check=false
bin=
read_options "cpu_only with_cuda_libraries tests check" bin "$@"
archive="$(realpath -m "${rest[0]:-causeway-linux-x86_64.tar.gz}")"
rest=("${rest[@]:1}")
refuse_rest
[[ -d "$(dirname "${archive}")" ]] || fail "there is no folder for ${archive}"
readonly PROGRAMS=(server/causeway-coordinator worker/causeway-worker
  cli/causeway)
if [[ -n "${bin}" ]]; then
  bin="$(realpath "${bin}")"
  check_programs "${bin}" "${PROGRAMS[@]}" cli/causeway-sentencepiece
fi
mapfile -t options < <("${cpu_only}" || cuda_build_options)
cuda=true
if ((${#options[@]} == 0)); then cuda=false; fi
if "${with_cuda_libraries}" && ! "${cuda}"; then
  fail "--with_cuda_libraries needs /usr/local/cuda/bin/nvcc, and excludes --cpu_only"
fi
cuda_libraries=()
if "${with_cuda_libraries}"; then
  for name in libcublasLt.so.13 libnccl.so.2; do
    path="$(find_cuda_library "${name}")" || fail "${name} is missing"
    cuda_libraries+=("${path}")
  done
fi
require_tools

cd "${ROOT}"
labels=()
for program in "${PROGRAMS[@]}"; do labels+=("//${program/\//:}"); done
if "${tests}" && "${cuda}"; then
  mapfile -t test_labels < <(bazel_gpu_programs)
  labels+=(//worker/embedding:libcauseway.so)
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
mkdir -p "${top}/bin" "${top}/lib" "${top}/tests/gpu"

readonly libraries="${top}/lib"

# The programs start causeway-sentencepiece, and look for it beside themselves.
for program in "${PROGRAMS[@]}" cli/causeway-sentencepiece; do
  add_file "${bin}/${program}" "${top}/bin"
done
for label in "${test_labels[@]}"; do
  path="${label#//}"
  add_file "${bin}/${path/://}" "${top}/tests/gpu"
done
if compgen -G "${top}/tests/gpu/*.so*" >/dev/null; then
  fail "a library is among the tests: $(ls "${top}/tests/gpu")"
fi
if ((${#test_labels[@]} > 0)); then
  add_python_package "${top}/python"
  mkdir "${top}/python/causeway/lib"
  add_file "${bin}/worker/embedding/libcauseway.so" "${top}/python/causeway/lib"
  install -D -m 644 -t "${top}/python/causeway/testing" python/causeway/testing/*.py
  install -D -m 644 -t "${top}/tests/pytorch" tests/pytorch/cuda_test.py
fi
install -m 755 tests/gpu/{run,training,streaming}.sh "${top}/tests/gpu"
install -m 644 tests/gpu/{island_runs.sh,pytorch.py} "${top}/tests/gpu"
# These keep the paths by which the documentation names them.
for file in deploy/{read_options.sh,quickstart.textproto,slurm/island.sbatch} \
  deploy/prometheus/{prometheus,causeway.rules}.yml deploy/grafana/*.json \
  docs/*.md docs/images/*; do
  install -D -m 644 "${file}" "${top}/${file}"
done
install -D -m 644 -t "${top}/tests/reference" \
  tests/reference/llama_golden.safetensors
install -m 644 LICENSE README.md "${top}"
add_licenses "${top}/licenses" "${added[@]}"

# Only Debian's libstdc++ and libgcc need glibc 2.36. If they are not beside the
# programs, the loader takes the host's.
mkdir "${libraries}/gcc"
mv "${libraries}"/{libstdc++.so.6,libgcc_s.so.1} "${libraries}/gcc"

# The worker loads CUDA's libraries under these names.
for path in "${cuda_libraries[@]}"; do
  install -m 644 -t "${libraries}" "${path}"
done

files=("${top}"/bin/* "${libraries}"/*.so*)
glibc="$(newest_version GLIBC_2 "${files[@]}")"
libstdcxx="$(newest_version GLIBCXX_3.4 "${files[@]}")"
printf 'bundle: needs glibc %s and libstdc++ with GLIBCXX_%s\n' "${glibc}" "${libstdcxx}"
for version in "${glibc} 2.34" "${libstdcxx} 3.4.29"; do
  read -r needed allowed <<<"${version}"
  if [[ "$(printf '%s\n' "${needed}" "${allowed}" | sort -V | tail -n 1)" != "${allowed}" ]]; then
    fail "a file needs version ${needed}, but hosts may have only ${allowed}"
  fi
done

# alone PROGRAM [ARGUMENT...]: runs a program with nothing but the bundle and
# glibc, and its output in stage/output. Without /proc the loader must be told
# where the program lies.
alone() {
  env -i LD_ORIGIN_PATH=/causeway/bin LD_LIBRARY_PATH=/causeway/lib/gcc \
    "$(command -v chroot)" "${stage}/alone" "$@" </dev/null \
    >"${stage}/output" 2>&1 || true
}

# Checks that the programs need nothing but the bundle and glibc.
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
    alone "/causeway/bin/$(basename "${program}")" --help
    grep -qE '^Usage: |^  Flags from ' "${stage}/output" ||
      fail "${program} does not run by itself: $(<"${stage}/output")"
  done
  # Without a peer that speaks its protocol, the program says what it is.
  alone /causeway/bin/causeway-sentencepiece
  grep -q 'is started by' "${stage}/output" ||
    fail "causeway-sentencepiece does not run by itself: $(<"${stage}/output")"
  printf 'bundle: the programs run with glibc and the bundle alone\n'
}
if "${check}"; then run_alone; fi

tar -C "${stage}" --owner=0 --group=0 --sort=name -cf - causeway |
  gzip -9 >"${archive}"
printf 'bundle: %s, %d bytes\n' "${archive}" "$(stat -c %s "${archive}")"
