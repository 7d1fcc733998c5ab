#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the container image of the three programs.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/libraries.sh
. "${ROOT}/deploy/libraries.sh"

usage() {
  cat <<'USAGE'
usage: deploy/container/build.sh [--cpu_only] [--bin DIRECTORY] [FLAG...]

Builds localhost/causeway:VERSION with `podman FLAG... build`. The same programs
give the same image. With nvcc, the worker is built for GPUs, and the image has
cuBLAS and NCCL, if they are here.

  --cpu_only       build without CUDA even if it is there
  --bin DIRECTORY  take the programs from there, in folders as in bazel-bin,
                   instead of building them
USAGE
}

fail() {
  printf 'build: error: %s\n' "$*" >&2
  exit 1
}

mapfile -t options < <(cuda_build_options)
bin=
podman=(podman)
while (($#)); do
  case "$1" in
    --cpu_only) options=() ;;
    --bin)
      bin="$(realpath "${2:?--bin needs a directory}")"
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) podman+=("$1") ;;
  esac
  shift
done
command -v podman >/dev/null || fail "podman is missing; install it"
cd "${ROOT}"
# shellcheck source=deploy/version.sh
. deploy/version.sh
readonly PROGRAMS=(server/causeway-coordinator worker/causeway-worker
  cli/causeway cli/causeway-sentencepiece)
if [[ -z "${bin}" ]]; then
  labels=()
  for program in "${PROGRAMS[@]}"; do labels+=("//${program/\//:}"); done
  bin="$(bazel_build_once "${ROOT}" "${options[@]}" "${labels[@]}")"
else
  check_programs "${bin}" "${PROGRAMS[@]}"
fi

work="$(mktemp -d)"
readonly work tree="${work}/root"
trap 'rm -rf "${work}"' EXIT
install -D -m 755 -t "${tree}/usr/bin" "${PROGRAMS[@]/#/${bin}/}"
strip --strip-unneeded "${tree}"/usr/bin/*
# Libraries keep their paths, as does the loader, which programs name by path.
ldd "${tree}"/usr/bin/* >"${work}/libraries"
if grep 'not found' "${work}/libraries"; then fail "libraries are missing"; fi
mapfile -t libraries < <(grep -oE '/[^ ]+\.so[^ ]*' "${work}/libraries" | sort -u)
for library in "${libraries[@]}"; do
  install -D -m 755 "${library}" "${tree}${library}"
done
if ((${#options[@]} > 0)); then
  for name in libcublas{,Lt}.so.13 libnccl.so.2; do
    if library="$(find_cuda_library "${name}")"; then
      install -D -m 755 -t "${tree}/usr/local/cuda/lib64" "${library}"
    fi
  done
fi
install -D -m 644 LICENSE "${tree}/usr/share/doc/causeway/copyright"
add_licenses "${tree}/usr/share/doc" "${libraries[@]}"
mkdir "${tree}/state"
chmod 777 "${tree}/state"
"${podman[@]}" build --layers=false --isolation chroot --timestamp 0 --network host \
  --label "org.opencontainers.image.title=causeway" \
  --label "org.opencontainers.image.version=${VERSION}" \
  --label "org.opencontainers.image.licenses=Apache-2.0" \
  --tag "localhost/causeway:${VERSION}" \
  --file deploy/container/Containerfile "${work}"
