#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that Causeway needs and that are missing. Running
# it again does nothing and needs neither root nor a network. The table below is
# the only list of packages in this project.

set -euo pipefail

# group, package, why. "a|b" is satisfied by either, and installs the first.
readonly PACKAGES='
build       bazel-bootstrap         the build system
build       clang                   the compiler (C++20)
build       g++                     the C++ library; the compiler of CUDA targets and sanitizers
build       bazel-rules-java        rules that Bazel itself loads
build       bazel-rules-proto       rules that Bazel itself loads
build       libgrpc++-dev           gRPC: every connection between processes
build       libprotobuf-dev         Protocol Buffers: messages, configuration
build       protobuf-compiler       generates C++ from proto/*.proto
build       protobuf-compiler-grpc  generates the gRPC stubs
build       libssl-dev              OpenSSL: checks of TLS certificates
build       libabsl-dev             Abseil: status, strings, flags, mutexes
build       libgoogle-glog-dev      logging
build       prometheus-cpp-dev      metrics in the text format of Prometheus
build       libsqlite3-dev          the coordinator'"'"'s committed history
build       libisal-dev             CRC-32C of every chunk
build       libxxhash-dev           XXH3-128: digests of replicas
build       nlohmann-json3-dev      headers of safetensors files, JSON output
build       libhwy-dev              Highway: portable SIMD kernels
build       libdnnl-dev             oneDNN: matrix products on the CPU
build       libsentencepiece-dev    SentencePiece tokenizer models
build       libgtest-dev            unit tests
build       libgmock-dev            unit tests
build       libbenchmark-dev        benchmarks
build       libzstd-dev             zstd, for exact values
build       patchelf                lets programs of an archive find its libraries (deploy/bundle.sh)
test        clang-format|clang-format-14  checks the layout of C++ sources
test        shellcheck              checks the shell scripts
test        chromium                shows the coordinator'"'"'s page (tests/page)
test        chromium-driver         drives Chromium
test        python3-selenium        drives Chromium
test        fonts-dejavu-core       texts in Chromium
test        iproute2                ss, ip, tc: connections and links (tests/chaos)
test        iptables                drops packets (tests/chaos)
test        libclang-rt-14-dev      libFuzzer and the sanitizers of clang
test        etcd-server             elects the coordinator that leads (tests/takeover)
test        etcd-client             etcdctl: makes users (server/election)
test        prometheus              scrapes real runs; promtool checks metrics and alerts
test        python3-torch           PyTorch, for the tests of python/causeway
test        python3-numpy           PyTorch warns without it
test        python3-venv            clean environments, to install the wheel in
test        libopenblas0-pthread    PyTorch computes with it, many times faster
test        systemd-container       boots a systemd (deploy/package/package_test.sh)
test        munge                   secrets of Slurm (deploy/slurm/slurm_test.sh)
test        slurmctld               the controller of Slurm
test        slurmd                  the node of Slurm
test        slurm-client            sbatch, srun, scontrol
test        python3-yaml            reads objects of Kubernetes (deploy/kubernetes/check.py)
test        podman                  builds and runs the container image
test        runc                    runs its containers, with either kind of cgroups
tidy        clang-tidy              static analysis (tests/tidy.sh)
quickstart  perl-doc                13 MB of English text to train on
peers       python3-torch           PyTorch, to compare with (tests/reference)
peers       python3-numpy           arrays for PyTorch scripts
'
readonly GROUPS_ALL="build test tidy quickstart peers"

usage() {
  cat <<'USAGE'
usage: deploy/install_deps.sh [--dry-run | --list] [GROUP...]

Installs what is missing of the named groups (default: build).

  build       compiler, build system and libraries
  test        what the tests and style checks use
  tidy        what tests/tidy.sh uses
  quickstart  the text that deploy/quickstart.sh trains on
  peers       PyTorch, for comparisons and golden values only

  --dry-run   say what would be installed, change nothing
  --list      print the packages of the groups, one per line
USAGE
}

say() { printf 'install_deps: %s\n' "$*"; }

fail() {
  printf 'install_deps: error: %s\n' "$1" >&2
  shift
  if (($#)); then printf '  %s\n' "$@" >&2; fi
  exit 1
}

# Prints the table's lines of one group.
lines_of() {
  awk -v group="$1" '$1 == group' <<<"${PACKAGES}"
}

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

any_installed() {
  local alternative
  for alternative in ${1//|/ }; do
    if is_installed "${alternative}"; then return 0; fi
  done
  return 1
}

# Prints one field of /etc/os-release.
os_release() {
  if [[ -r /etc/os-release ]]; then
    (
      # shellcheck source=/dev/null
      . /etc/os-release
      printf '%s' "${!1:-}"
    )
  fi
}

install() {
  local by_hand="apt-get install --no-install-recommends $*"
  command -v apt-get >/dev/null ||
    fail "apt-get is missing; Causeway is built on Debian 12." \
      "On another system, install what provides: $*"
  local system version
  system="$(os_release ID)"
  version="$(os_release VERSION_ID)"
  if [[ "${system}" != debian || "${version%%.*}" -lt 12 ]]; then
    fail "this is ${system:-an unknown system} ${version}, not Debian 12." \
      "If its packages will do, run: ${by_hand}"
  fi
  if [[ "$(id -u)" -ne 0 ]]; then
    fail "packages are missing and only root can install them. Run as root:" \
      "${by_hand}"
  fi

  local apt=(apt-get -q -o DPkg::Lock::Timeout=300 -o DPkg::Use-Pty=0
    -o Acquire::Retries=3)
  # One unreachable source is no reason to stop: the installation below shows
  # whether the packages are available.
  "${apt[@]}" update ||
    say "warning: apt-get update failed; trying with the existing lists"
  DEBIAN_FRONTEND=noninteractive \
    "${apt[@]}" install --yes --no-install-recommends "$@" ||
    fail "apt-get could not install the packages (its reason is above)." \
      "Without a network, copy the .deb files of these packages and their" \
      "dependencies here and install them with dpkg -i, or, once the network" \
      "is back, run: ${by_hand}"
}

main() {
  local mode=install groups=()
  while (($#)); do
    case "$1" in
      --dry-run) mode=dry-run ;;
      --list) mode=list ;;
      -h | --help)
        usage
        exit 0
        ;;
      build | test | tidy | quickstart | peers) groups+=("$1") ;;
      *)
        usage >&2
        fail "unknown argument '$1'; groups are: ${GROUPS_ALL}"
        ;;
    esac
    shift
  done
  if ((${#groups[@]} == 0)); then groups=(build); fi

  local group package reason missing=()
  for group in "${groups[@]}"; do
    while read -r _ package reason; do
      if [[ "${mode}" == list ]]; then
        printf '%s\n' "${package%%|*}"
        continue
      fi
      command -v dpkg-query >/dev/null ||
        fail "dpkg-query is missing: this is not a Debian system." \
          "Causeway is built on Debian 12; --list prints the packages it needs"
      if ! any_installed "${package}"; then
        missing+=("${package%%|*}")
        say "${group}: ${package%%|*} is missing (${reason})"
      fi
    done < <(lines_of "${group}")
  done

  if [[ "${mode}" == list ]]; then return; fi
  if ((${#missing[@]} == 0)); then
    say "all packages are installed (${groups[*]})"
  elif [[ "${mode}" == dry-run ]]; then
    say "would run: apt-get install --no-install-recommends ${missing[*]}"
  else
    say "installing ${#missing[@]} packages and what they depend on"
    install "${missing[@]}"
    say "done"
  fi
}

main "$@"
