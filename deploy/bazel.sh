# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# How the scripts call Bazel; to be sourced. It needs neither namespaces nor a
# terminal: where the kernel or a container forbids Bazel's sandbox, Bazel
# itself falls back to running actions in a plain directory.

# HOME may be unset in a service or a container; Bazel keeps its cache there.
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"

# Bazel, in an environment of its own: variables such as CC, JAVA_HOME or
# USE_BAZEL_VERSION would change the compiler or the Bazel that is run. A
# command rather than a function, so that "${BAZEL[@]}" ... & leaves Bazel's
# process id in $!.
# shellcheck disable=SC2034  # for those who source this
BAZEL=(env -i HOME="${HOME}" USER="$(id -un)" TERM="${TERM:-dumb}" LANG=C.UTF-8
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  /usr/bin/bazel)

# Options for a build whose output is read by people: a live display in a
# terminal, else a line now and then. No links are left in the source tree.
bazel_display_options() {
  printf '%s\n' --symlink_prefix=/
  if [[ ! -t 1 || -n "${CI:-}" ]]; then
    printf '%s\n' --curses=no --color=no --show_progress_rate_limit=20
  fi
}

# Whether a Bazel server for the source tree $1 is up. Bazel names its output
# base after the MD5 of that path; asking Bazel itself would start a server.
bazel_server_is_up() {
  local digest pid base
  base="${HOME}/.cache/bazel/_bazel_$(id -un)"
  digest="$(printf '%s' "$1" | md5sum | cut -d' ' -f1)"
  pid="$(cat "${base}/${digest}/server/server.pid.txt" 2>/dev/null)" || return 1
  kill -0 "${pid}" 2>/dev/null
}
