# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Copies programs and shared libraries together with the libraries that they
# need, their licenses, and the Python package, for scripts that source this file.
# They set `libraries`, the folder that libraries are copied to, and define
# `fail`, which ends the script with a message.

# shellcheck shell=bash
# shellcheck disable=SC2154

# Succeeds for glibc's libraries and its loader, which every Linux has.
is_of_glibc() {
  case "$1" in
    linux-vdso.so.* | ld-linux* | libc.so.6 | libm.so.6 | libpthread.so.0 | \
      libdl.so.2 | librt.so.1 | libresolv.so.2 | libutil.so.1 | \
      libnss_*.so.2 | libanl.so.1) return 0 ;;
  esac
  return 1
}

# Fails unless the tools that this file uses are installed.
require_tools() {
  local tool
  for tool in patchelf strip readelf; do
    command -v "${tool}" >/dev/null ||
      fail "${tool} is missing; run deploy/install_deps.sh build"
  done
}

# check_programs DIRECTORY PROGRAM...: fails unless the directory has programs
# such as cli/causeway.
check_programs() {
  local program
  for program in "${@:2}"; do
    [[ -x "$1/${program}" ]] || fail "--bin: there is no $1/${program}"
  done
}

# The libraries that add_file has copied, as they lie on this machine.
added=()

# add_file FILE DIRECTORY: copies a program or library to a directory, and the
# libraries that it needs to `libraries`, where it finds them.
add_file() {
  local to name path
  to="$2/$(basename "$1")"
  install -m 755 "$1" "${to}"
  strip --strip-unneeded "${to}"
  # RUNPATH would not apply to what libraries need in turn.
  patchelf --force-rpath --set-rpath \
    "\$ORIGIN/$(realpath --relative-to="$2" "${libraries}")" "${to}"
  while read -r name path; do
    if is_of_glibc "$(basename "${name}")"; then continue; fi
    if [[ "${path}" != /* ]]; then fail "$1 needs ${name}, which is not here"; fi
    if [[ ! -e "${libraries}/${name}" ]]; then
      install -m 644 "${path}" "${libraries}/${name}"
      strip --strip-unneeded "${libraries}/${name}"
      patchelf --remove-rpath "${libraries}/${name}"
      added+=("${path}")
    fi
  done < <(ldd "$1" | awk '{ print $1, ($2 == "=>" ? $3 : "") }')
}

# find_cuda_library NAME: prints the path of a library of NVIDIA's, or fails. The
# package of NCCL puts it beside Debian's libraries, the toolkit beside CUDA's.
find_cuda_library() {
  local folder
  for folder in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu; do
    if [[ -e "${folder}/$1" ]]; then
      printf '%s\n' "${folder}/$1"
      return
    fi
  done
  return 1
}

# add_licenses DIRECTORY LIBRARY...: copies the copyright files of the libraries'
# Debian packages, and the licenses of headers that are compiled in, to a
# directory, each as PACKAGE/copyright.
add_licenses() {
  local directory="$1" path package found paths
  shift
  # Packages name their files as they were before /lib became a link to /usr/lib.
  mapfile -t paths < <(realpath "$@")
  found="$(dpkg -S "${paths[@]}" "${paths[@]#/usr}" 2>/dev/null || true)"
  for path in "${paths[@]}"; do
    if [[ "${found}" != *": "*"/$(basename "${path}")"* ]]; then
      fail "no Debian package has ${path}, so its license is not known"
    fi
  done
  while IFS= read -r package; do
    install -D -m 644 "/usr/share/doc/${package}/copyright" \
      "${directory}/${package}/copyright"
  done < <((echo nlohmann-json3-dev && awk -F '[:,]' '{ print $1 }' <<<"${found}") | sort -u)
  install -D -m 644 third_party/cudnn_frontend.LICENSE \
    "${directory}/cudnn-frontend/copyright"
}

# add_python_package DIRECTORY: copies the package for PyTorch, without its tests,
# from the current source tree.
add_python_package() {
  local file
  while IFS= read -r file; do
    install -D -m 644 "python/${file}" "$1/${file}"
  done < <(cd python && find causeway -name '*.py' -not -name '*_test.py' \
    -not -path '*/testing/*' -not -name testing.py)
}

# newest_version PREFIX FILE...: prints the newest version that a file needs, such
# as 2.34 for GLIBC_2.
newest_version() {
  local prefix="$1"
  shift
  readelf --version-info "$@" | grep -oE "${prefix//./\\.}\\.[0-9]+" |
    sort -uV | tail -n 1 | sed 's/.*_//'
}
