#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Gets the headers of NCCL, cuBLAS and cuDNN for a CUDA toolkit that lacks them,
# from NVIDIA's packages on PyPI. A build needs only the headers, because programs
# load the libraries when they need them. Does nothing if the headers are there.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"

# The releases of CUDA 13.0. Later releases of cuDNN's frontend also need the
# headers of NVRTC.
readonly PACKAGES=(nvidia-nccl-cu13==2.28.9 nvidia-cublas==13.0.0.19
  nvidia-cudnn-cu13==9.19.0.56 nvidia-cudnn-frontend==1.18.0)

if (($# > 0)); then
  echo "usage: deploy/cuda_headers.sh"
  if [[ "$*" == --help || "$*" == -h ]]; then exit 0; else exit 2; fi
fi
if cuda_headers_are_installed || cuda_headers_are_fetched; then
  exit 0
fi

echo "cuda_headers: fetching ${PACKAGES[*]}"
scratch="$(mktemp -d)"
trap 'rm -rf "${scratch}"' EXIT
python3 -m pip download --quiet --no-deps --only-binary=:all: \
  --disable-pip-version-check --dest "${scratch}" "${PACKAGES[@]}"
mkdir "${scratch}/include"
python3 - "${scratch}" <<'PYTHON'
"""Unpacks the headers of the packages in a folder into its folder include.

cuDNN's have a folder of their own, because they are many and few sources read
them.
"""
import pathlib
import sys
import zipfile

folder = pathlib.Path(sys.argv[1])
for package in folder.glob("*.whl"):
    include = folder / "include"
    if package.name.startswith("nvidia_cudnn"):
        # The frontend includes "../include".
        include = include / "cudnn" / "include"
    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            _, mark, header = f"/{name}".partition("/include/")
            if mark and header.endswith(".h"):
                path = include / header
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
PYTHON
mkdir -p "$(dirname "${CUDA_HEADERS}")"
rm -rf "${CUDA_HEADERS}"
mv "${scratch}/include" "${CUDA_HEADERS}"
echo "cuda_headers: ${CUDA_HEADERS} has them"
