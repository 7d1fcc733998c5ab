# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Calls Bazel for the scripts that source this file. Bazel needs neither
# namespaces nor a terminal: where the kernel or a container forbids its sandbox,
# it runs actions in a plain directory.

# HOME may be unset in a service or a container; Bazel keeps its cache there.
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"

# Bazel gets an environment of its own, because variables such as CC, JAVA_HOME
# or USE_BAZEL_VERSION would change the compiler or the Bazel that is run. This
# is no function, so that "${BAZEL[@]}" ... & leaves Bazel's process id in $!.
# shellcheck disable=SC2034  # for those who source this
BAZEL=(env -i HOME="${HOME}" USER="$(id -un)" TERM="${TERM:-dumb}" LANG=C.UTF-8
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  /usr/bin/bazel)

# Prints options for a build whose output people read: a live display if stderr,
# where Bazel writes, is a terminal, else a line now and then. The build leaves
# no links in the source tree.
bazel_display_options() {
  printf '%s\n' --symlink_prefix=/
  if [[ ! -t 2 || -n "${CI:-}" ]]; then
    printf '%s\n' --curses=no --color=no --show_progress_rate_limit=20
  fi
}

# Succeeds if a Bazel server for the source tree $1 is up. Bazel names its output
# base after the MD5 of that path; asking Bazel itself would start a server.
bazel_server_is_up() {
  local digest pid base
  base="${HOME}/.cache/bazel/_bazel_$(id -un)"
  digest="$(printf '%s' "$1" | md5sum | cut -d' ' -f1)"
  pid="$(cat "${base}/${digest}/server/server.pid.txt" 2>/dev/null)" || return 1
  kill -0 "${pid}" 2>/dev/null
}

# deploy/cuda_headers.sh puts the headers here that the CUDA toolkit lacks.
# shellcheck disable=SC2034  # for those who source this
CUDA_HEADERS="${HOME}/.cache/causeway/cuda_headers"

# Succeeds if the compiler finds the headers of NCCL, cuBLAS and cuDNN by itself.
cuda_headers_are_installed() {
  local header folder found
  for header in nccl.h cublasLt.h cudnn_frontend.h; do
    found=false
    for folder in /usr/local/cuda/include /usr/include; do
      if [[ -r "${folder}/${header}" ]]; then found=true; fi
    done
    if [[ "${found}" == false ]]; then return 1; fi
  done
}

# Succeeds if deploy/cuda_headers.sh has fetched all that it fetches today.
cuda_headers_are_fetched() {
  [[ -r "${CUDA_HEADERS}/nccl.h" && -r "${CUDA_HEADERS}/cudnn/include/cudnn_frontend.h" ]]
}

# Prints the options of a build for GPUs, one a line. Fails, with the reason on
# stderr, if this machine cannot make such a build.
cuda_build_options() {
  if ! [[ -x /usr/local/cuda/bin/nvcc ]]; then
    echo "no CUDA: there is no /usr/local/cuda/bin/nvcc" >&2
    return 1
  fi
  if cuda_headers_are_installed; then
    echo --config=cuda
  elif cuda_headers_are_fetched; then
    printf '%s\n' --config=cuda "--repo_env=CAUSEWAY_CUDA_HEADERS=${CUDA_HEADERS}"
  else
    echo "no CUDA: the headers of NCCL, cuBLAS or cuDNN are missing;" \
      "install them, or run deploy/cuda_headers.sh" >&2
    return 1
  fi
}

# bazel_build_once ROOT TARGET...: builds targets of the source tree ROOT and
# prints the folder that they are in. Bazel's own messages go to stderr. Its
# server stays up only if it was up before.
bazel_build_once() (
  # A shell whose output is captured does not inherit this.
  set -e
  cd "$1"
  shift
  server_was_up=false
  if bazel_server_is_up "${PWD}"; then server_was_up=true; fi
  mapfile -t display < <(bazel_display_options)
  "${BAZEL[@]}" build "${display[@]}" "$@" >&2
  "${BAZEL[@]}" info bazel-bin 2>/dev/null
  if [[ "${server_was_up}" == false ]]; then
    "${BAZEL[@]}" shutdown >/dev/null 2>&1 || true
  fi
)

# Prints the labels of the tests and benchmarks that need a GPU, without the
# emulator's libraries, which programs would load instead of NVIDIA's. Runs in
# the source tree.
bazel_gpu_programs() {
  "${BAZEL[@]}" query --noshow_progress \
    'kind("cc_(test|binary)", attr(tags, "\bcuda\b", //... except //tests/cuda_emulator:*))'
}
