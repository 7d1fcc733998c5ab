# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Shared by scripts that measure and compare: flags, figures, a link between two
# network namespaces, a slow rank, and deploy/run_processes.sh. A script that
# sources this file gets ROOT, the root of the repository, and defines `usage`
# and a function for each part.

# shellcheck shell=bash
# What is set here is for the scripts that source this file, and the other way
# round.
# shellcheck disable=SC2034,SC2154

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

# parse_flags NAMES ARGUMENT...: sets `keep`, and the variables NAMES, one for
# each flag with a value.
json=
parse_flags() {
  read_options keep "$1" "${@:2}"
  refuse_rest
  if [[ -n "${json}" ]]; then json="$(realpath "${json}")"; fi
}

# run_parts NAME...: runs the parts that `parts` lists, and prints and writes
# their figures.
run_parts() {
  local part report known=" $* "
  for part in ${parts//,/ }; do
    if [[ "${known}" != *" ${part} "* ]]; then
      fail "there is no part '${part}'; there are${known}"
    fi
    "${part}"
  done
  report="$(
    perl -e '
      my @fields;
      while (my ($name, $value) = splice @ARGV, 0, 2) {
        push @fields, "  \"$name\": $value";
      }
      print "{\n", join(",\n", @fields), "\n}\n"' "${figures[@]}"
  )"
  say "${report}"
  if [[ -n "${json}" ]]; then printf '%s\n' "${report}" >"${json}"; fi
}

# figure NAME VALUE: adds a field to the report.
figures=()
figure() { figures+=("$1" "$2"); }

# calculate EXPRESSION [NAME=VALUE...]: prints the value of the expression.
calculate() {
  local expression="$1" assignments=()
  shift
  for pair in "$@"; do assignments+=(-v "${pair}"); done
  awk "${assignments[@]}" "BEGIN { printf \"%.6g\", (${expression}) }"
}

# ---- Two network namespaces, ZONE-0 and ZONE-1, and a link between them

readonly zone="causeway-$$"
# Names of the link's ends.
readonly devices=("${zone##*-}a" "${zone##*-}b")

# add_network: makes both and removes them when the script ends. Without the
# rights for that, says why and returns 1.
add_network() {
  if ! { ip netns add "${zone}-0" && ip netns add "${zone}-1"; } \
    2>"${work}/network.log"; then
    say "skipped, it needs root: $(<"${work}/network.log")"
    return 1
  fi
  trap 'code=$?; remove_network; finish "${code}"' EXIT
  ip link add "${devices[0]}" netns "${zone}-0" type veth \
    peer name "${devices[1]}" netns "${zone}-1"
  local side
  for side in 0 1; do
    ip -n "${zone}-${side}" address add "10.177.0.$((side + 1))/24" \
      dev "${devices[side]}"
    ip -n "${zone}-${side}" link set "${devices[side]}" up
    ip -n "${zone}-${side}" link set lo up
  done
}
# shape BITS_PER_SECOND: limits each direction of the link.
shape() {
  local side
  for side in 0 1; do
    ip netns exec "${zone}-${side}" tc qdisc replace dev "${devices[side]}" \
      root tbf rate "$1bit" burst 256kb latency 200ms
  done
}
unshape() {
  local side
  for side in 0 1; do
    ip netns exec "${zone}-${side}" tc qdisc delete dev "${devices[side]}" root
  done
}
# Prints the bytes that the link has carried, with all headers.
carried_bytes() {
  ip netns exec "${zone}-0" cat \
    "/sys/class/net/${devices[0]}/statistics/"{rx,tx}_bytes |
    awk '{ sum += $1 } END { printf "%d", sum }'
}
remove_network() {
  ip netns delete "${zone}-0" 2>/dev/null || true
  ip netns delete "${zone}-1" 2>/dev/null || true
}

# slow_down PID: lets the process run a quarter of the time, until it ends.
slow_down() {
  local pid="$1"
  (
    while kill -CONT "${pid}" 2>/dev/null; do
      sleep 0.02
      kill -STOP "${pid}" 2>/dev/null || break
      sleep 0.06
    done
  ) &
}
