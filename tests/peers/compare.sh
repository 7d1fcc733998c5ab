#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Trains one model with Causeway and with other systems, on the same emulated
# long links.

set -euo pipefail

# shellcheck source=tests/comparison.sh
. "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

usage() {
  cat <<'USAGE'
usage: tests/peers/compare.sh [--json FILE] [--peers LIST] [--links LIST]
                              [--workers LIST] [--steps N] [--kinds LIST]
                              [--keep]

  --json FILE     write the figures there; those of runs that are not made now
                  stay in it
  --peers LIST    of causeway,diloco,powersgd,torchft,torchft-streaming,
                  torchft-localsgd,hivemind,flower (default: all of them)
  --links LIST    Mbit/s:milliseconds of a round trip (default: 100:50,10:150)
  --workers LIST  numbers of workers (default: 2,4)
  --steps N       steps of a run (default: 240)
  --kinds LIST    of none,worker,server: whom SIGKILL meets in the middle of a
                  run; it is then started again at once (default: none)
  --keep          keep the working directory

Each worker has a network namespace of its own, and whatever a peer has as a
server another one, whose link has no limit (tests/wan/sites.cc). Workers that
nothing connects (alone) are measured first in every setting. tests/peers/trial.py
has the model and the steps, tests/peers/figures.py what is computed from them.
Needs root and, at first, PyPI.
USAGE
}

peers=causeway,diloco,powersgd,torchft,torchft-streaming,torchft-localsgd,hivemind,flower
links=100:50,10:150
workers=2,4
steps=240
kinds=none
# Seconds after which a run has failed.
readonly LIMIT=400
parse_flags "json peers links workers steps kinds" "$@"
cd "${ROOT}"

# environment PACKAGE: prints the folder of a Python environment with PyTorch
# and the package, which it makes if it is not there.
environment() {
  local folder="${HOME}/.cache/causeway/peers/$1"
  local list=tests/peers/requirements.txt
  # The copy of the list is made last.
  if ! cmp -s "${list}" "${folder}/requirements.txt"; then
    /usr/bin/python3 -m venv "${folder}" >&2
    "${folder}/bin/pip" install -qq --disable-pip-version-check \
      --prefer-binary --constraint "${list}" torch numpy "$1" >&2 || return 1
    cp "${list}" "${folder}/"
  fi
  printf '%s\n' "${folder}"
}

# start_sites COUNT: makes COUNT sites; the last one is for servers.
start_sites() {
  local i
  start sites "${bin}/tests/wan/causeway-wan-sites" --sites "$1" \
    --rate_mbit_s "${link%:*}" --round_trip_ms "${link#*:}"
  sites=()
  until ((${#sites[@]} == $1)); do
    if [[ -n "$(ended_process)" ]]; then fail_of sites "ended"; fi
    sleep 0.2
    mapfile -t sites < <(grep '^/proc' "${work}/sites.log")
  done
  for ((i = 0; i < $1; ++i)); do
    nsenter --net="${sites[i]}" ip route add default via "10.77.${i}.1"
  done
  host="10.77.$(($1 - 1)).2"
}

# start_apart SITE NAME COMMAND...: starts a process, and a group of processes
# that it leads, at a site, on a host whose name is its address.
start_apart() {
  # shellcheck disable=SC2016  # for the inner shell
  within=(setsid nsenter "--net=${sites[$1]}" unshare --uts
    sh -c 'hostname "$0" && exec "$@"' "10.77.$1.2" env WORKER="$1"
    WORKERS="${count}" PEER="${peer}" HOST="10.77.$1.2" SERVER="${host}"
    OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1)
  start "${@:2}"
  within=()
}

# note_time WHAT: records that WHAT happens in the run now.
note_time() {
  perl -MTime::HiRes=clock_gettime,CLOCK_MONOTONIC \
    -e 'printf "%.4f\n", clock_gettime(CLOCK_MONOTONIC)' >"${work}/${name}.$1"
}

# start_server [SUFFIX]: starts what the peer has beside the workers, if anything.
start_server() {
  local command ready
  case "${peer}" in
    causeway)
      ready='on port'
      command=("${bin}/server/causeway-coordinator" --insecure
        --config "${work}/${name}.files/run.textproto" --tls ""
        --initial_parameters "${work}/${name}.files/initial.safetensors"
        --state_dir "${work}/${name}.state" --listen "${host}:7070"
        --exit_when_finished)
      ;;
    torchft*)
      ready='listening on'
      command=("${python%/*}/torchft_lighthouse" --min_replicas 1
        --join_timeout_ms 10000 --bind "${host}:29510")
      ;;
    hivemind)
      ready=p2p
      command=("${python%/*}/hivemind-dht" --host_maddrs
        "/ip4/${host}/tcp/31337" --identity_path "${work}/${name}.identity")
      ;;
    flower)
      ready='server running'
      command=(env SERVING=1 "${python}" "${script}" --data "${data[@]}"
        --steps "${steps}")
      ;;
    *) return ;;
  esac
  start_apart "${count}" "${name}.server${1-}" "${command[@]}"
  server=$!
  until grep -qsE "${ready}" "${work}/${name}.server${1-}.log"; do
    kill -0 "${server}" 2>/dev/null || fail_of "${name}.server${1-}" "ended"
    sleep 0.1
  done
  initial_peer="$(grep -oEm 1 '/ip4/.*/p2p/\w+' "${work}/${name}.server.log" ||
    true)"
}

# start_worker RANK [SUFFIX]
start_worker() {
  start_apart "$1" "${name}.$1${2-}" env MASTER_ADDR=10.77.0.2 \
    MASTER_PORT=29577 GLOO_SOCKET_IFNAME=wan0 INITIAL_PEER="${initial_peer}" \
    CAUSEWAY_COORDINATOR="${host}:7070" \
    CAUSEWAY_LIBRARY="${bin}/worker/embedding/libcauseway.so" \
    CAUSEWAY_ISLAND="worker-$1" \
    CAUSEWAY_CHECKPOINT_DIR="${work}/${name}.checkpoint.$1" \
    "${python}" "${script}" --data "${data[@]}" --steps "${steps}"
  running[$!]="$1${2-}"
  worker_pids[$1]=$!
}

# await_workers: waits for all that run, within the limit.
await_workers() {
  local pid deadline=$((begin + LIMIT))
  while ((${#running[@]} > 0)); do
    sleep 0.2
    if ((SECONDS > deadline)); then
      say "${name}: no end: workers ${running[*]}"
      return
    fi
    for pid in "${!running[@]}"; do
      if kill -0 "${pid}" 2>/dev/null; then continue; fi
      wait "${pid}" || say "${name}: worker ${running[${pid}]} failed: $(
        tail -n 1 "${work}/${name}.${running[${pid}]}.log")"
      unset "running[${pid}]"
      # A worker that was started again may wait in vain for one that is gone.
      if [[ "${running[*]}" =~ ^[0-9]+-again$ ]]; then
        deadline=$((SECONDS + 30))
      fi
    done
  done
}

# Kills a worker or the server once half of the steps are made, and starts it
# again at once.
kill_one() {
  local last=$((count - 1)) log="${work}/${name}.0.log"
  # Not just after the end of a round.
  until grep -qs "^step $((steps / 2 + 15)) " "${log}"; do
    if ((SECONDS > begin + LIMIT)); then return; fi
    sleep 0.1
  done
  local victim="${server}"
  if [[ "${kind}" == worker ]]; then victim="${worker_pids[last]}"; fi
  note_time killed
  kill -KILL -- "-${victim}"
  if [[ "${kind}" == worker ]]; then
    unset "running[${victim}]"
    start_worker "${last}" -again
  else
    start_server -again
  fi
}

# run PEER COUNT LINK KIND: trains once.
run() {
  local peer="$1" count="$2" link="$3" kind="$4" rank python script begin
  local server='' initial_peer=''
  local name="${peer}.${count}.${link}.${kind}" worker_pids=()
  local -A running=()
  script="tests/peers/peer_${peer%%-*}.py"
  case "${peer}" in
    torchft* | hivemind) python="$(environment "${peer%%-*}")" ;;
    flower) python="$(environment flwr)" ;;
    *) python="$(tests/pytorch/environment.sh)" ;;
  esac || {
    say "${peer} cannot be installed"
    return
  }
  python+=/bin/python3
  begin="${SECONDS}"
  start_sites "$((count + 1))"
  note_time began
  if [[ "${peer}" == causeway ]]; then
    WORKERS="${count}" CREATE_RUN="${work}/${name}.files" \
      "${python}" "${script}" --data "${data[@]}" --steps "${steps}"
  fi
  start_server
  if [[ "${kind}" == server && -z "${server}" ]]; then
    say "${name}: there is no server"
    stop_processes
    return
  fi
  for ((rank = 0; rank < count; ++rank)); do start_worker "${rank}"; done
  if [[ "${kind}" != none ]]; then kill_one; fi
  await_workers
  for pid in "${pids[@]}"; do kill -KILL -- "-${pid}" 2>/dev/null || true; done
  stop_processes
  say "${name}: $((SECONDS - begin)) seconds"
}

finish_on_exit
deploy/install_deps.sh build quickstart
more_targets=(//tests/wan:causeway-wan-sites //worker/embedding:libcauseway.so)
build_programs
bin="${coordinator%/server/*}"
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-peers.XXXXXX")"
use_perl_manual
for link in ${links//,/ }; do
  for count in ${workers//,/ }; do
    for kind in ${kinds//,/ }; do
      if [[ "${kind}" == none ]]; then run alone "${count}" "${link}" none; fi
      for peer in ${peers//,/ }; do run "${peer}" "${count}" "${link}" "${kind}"; done
    done
  done
done
python3 tests/peers/figures.py "${work}" ${json:+"${json}"}
