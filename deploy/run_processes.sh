# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a coordinator and islands as processes, for scripts that source this file,
# keeps their logs, and ends them. Uses and sets
#
#   ROOT         the root of the repository, which the script sets
#   work         directory of the run: NAME.log, state directories, ports
#   keep         true: `work` stays after success, too
#   coordinator, worker, causeway    set by build_programs
#   data         array of text files
#   more_targets array of what build_programs builds beside the programs
#   address      of the coordinator that was started last
#   tls          array of the flags with which to call it; empty for plain text
#   within       array: a command that starts each process, as `ip netns exec NAME`
#   host         the address at which coordinators listen
#
# Functions run in the root of the repository.

# shellcheck shell=bash
# shellcheck disable=SC2034

# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"

program="$(basename "$0" .sh)"
readonly program
work=
keep=false
pids=()
tls=()
within=()
host=127.0.0.1
more_targets=()
declare -A names
server_was_up=false

say() { printf '%s\n' "$@"; }

fail() {
  printf '\n%s: error: %s\n' "${program}" "$1" >&2
  exit 1
}

build_programs() {
  local display bin
  mapfile -t display < <(bazel_display_options)
  "${BAZEL[@]}" build "${display[@]}" //server:causeway-coordinator \
    //worker:causeway-worker //cli:causeway "${more_targets[@]}"
  bin="$("${BAZEL[@]}" info bazel-bin 2>/dev/null)"
  readonly coordinator="${bin}/server/causeway-coordinator"
  readonly worker="${bin}/worker/causeway-worker"
  readonly causeway="${bin}/cli/causeway"
}

# Stops the islands first, so that they can leave the run in order.
stop_processes() {
  local index pid deadline
  for ((index = ${#pids[@]} - 1; index >= 0; --index)); do
    pid="${pids[index]}"
    kill -TERM "${pid}" 2>/dev/null || continue
    deadline=$((SECONDS + 5))
    while kill -0 "${pid}" 2>/dev/null && ((SECONDS < deadline)); do
      sleep 0.1
    done
    kill -KILL "${pid}" 2>/dev/null || true
  done
  if ((${#pids[@]} > 0)); then wait "${pids[@]}" 2>/dev/null || true; fi
  pids=()
}

# finish [CODE]: ends all processes, and the script with CODE (default: that of
# the previous command).
finish() {
  local code="${1:-$?}"
  trap - EXIT
  trap '' INT TERM
  stop_processes
  if [[ "${server_was_up}" == false ]] && bazel_server_is_up "${ROOT}"; then
    "${BAZEL[@]}" shutdown >/dev/null 2>&1 || true
  fi
  if [[ -n "${work}" ]]; then
    # The files explain a failure; an interrupt explains itself.
    if [[ "${keep}" == true || "${code}" -eq 1 ]]; then
      say "" "The data, models and logs of this run are in ${work}"
    else
      rm -rf "${work}"
    fi
  fi
  exit "${code}"
}

# Ends all processes when the script ends, by a signal, too.
finish_on_exit() {
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  if bazel_server_is_up "${ROOT}"; then server_was_up=true; fi
}

# Sets `data` to the prose of Perl's manual, which it writes to `work`.
use_perl_manual() {
  local pages
  data=("${work}/perl_manual.txt")
  # Tables and indexes are not prose.
  mapfile -t pages < <(dpkg -L perl-doc | grep '\.pod$' |
    grep -vE '/perl(toc|api|intern|modlib|uniprops)\.pod$')
  perl deploy/pod_prose.pl "${pages[@]}" >"${data[0]}"
}

# start NAME COMMAND...: runs a process with its output in work/NAME.log.
start() {
  local name="$1"
  shift
  "${within[@]}" "$@" >"${work}/${name}.log" 2>&1 </dev/null &
  pids+=($!)
  names[$!]="${name}"
}

# start_script NAME SCRIPT FLAG...: starts a program in Python. more_targets must
# contain //worker/embedding:libcauseway.so.
start_script() {
  local name="$1"
  shift
  # Waiting threads leave the processors to others.
  start "${name}" env OMP_WAIT_POLICY=passive \
    CAUSEWAY_LIBRARY="${coordinator%/server/*}/worker/embedding/libcauseway.so" \
    python/run_test.sh "$@"
}

# Prints the name of a process that has ended, if any has.
ended_process() {
  local pid
  for pid in "${pids[@]}"; do
    if ! kill -0 "${pid}" 2>/dev/null; then
      printf '%s' "${names[${pid}]}"
      return
    fi
  done
}

fail_of() {
  show_log "$1"
  fail "$1 $2"
}

show_log() {
  printf '\n--- the end of %s\n' "${work}/$1.log" >&2
  tail -n 15 "${work}/$1.log" >&2
}

# start_coordinator NAME CONFIG [TLS [FLAG...]]: starts a coordinator and sets
# `address`. With TLS "auto" it has an authority of its own, and `tls` is set.
start_coordinator() {
  start "$1-coordinator" "${coordinator}" --config "$2" --tls "${3-}" \
    --state_dir "${work}/$1" --listen "${host}:0" --port_file "${work}/$1.port" \
    "${@:4}"
  if [[ "${3-}" == auto ]]; then tls=(--tls "${work}/$1/tls/operator"); fi
  local deadline=$((SECONDS + 30))
  until [[ -s "${work}/$1.port" ]]; do
    if [[ -n "$(ended_process)" ]]; then
      fail_of "$1-coordinator" "did not start"
    elif ((SECONDS > deadline)); then
      fail_of "$1-coordinator" "did not open its port in 30 seconds"
    fi
    sleep 0.1
  done
  address="${host}:$(<"${work}/$1.port")"
}

# Prints a token for an island of the run at `address`.
make_token() {
  "${causeway}" token create --island "$1" "${tls[@]}" \
    --coordinator "${address}" 2>"${work}/token.log" ||
    fail_of token "for $1 was not made"
}

# join_island NAME FLAG...: makes a token, and starts an island that joins the
# run at `address` with it.
join_island() {
  local name="$1" token
  shift
  token="$(make_token "${name}")"
  start "island-${name}" "${worker}" --coordinator "${address}" \
    --join "${token}" --tls "${work}/${name}.tls" "$@"
}

# Sets run_state, step, total_steps, merged, total_rounds, loss, rate, up, down,
# data_parallel and tokens from the status service at `address`.
read_status() {
  local values new_loss new_rate
  values="$("${causeway}" status --coordinator "${address}" "${tls[@]}" --json \
    2>"${work}/status.log" | perl -MJSON::PP -e '
      local $/;
      my $run = decode_json(<STDIN>)->{run};
      print join " ", map { $run->{$_} } qw(state run_step total_steps rounds
        total_rounds loss tokens_per_second bytes_received bytes_sent
        bytes_data_parallel tokens_merged parameters)' 2>/dev/null)" || return 1
  read -r run_state step total_steps merged total_rounds new_loss new_rate up \
    down data_parallel tokens parameters <<<"${values}"
  # Islands that have left report nothing more; their last values still hold.
  if [[ "${new_loss}" != 0 ]]; then loss="${new_loss}"; fi
  if [[ "${new_rate}" != 0 ]]; then rate="${new_rate}"; fi
}

# Waits for the workers, which end by themselves once the run is finished. Fails
# if one fails, or if the coordinator ends, without which they would never end.
await_islands() {
  local pid waited=("${pids[@]:1}") running
  while ((${#waited[@]} > 0)); do
    running=()
    for pid in "${waited[@]}"; do
      if kill -0 "${pid}" 2>/dev/null; then
        running+=("${pid}")
      else
        wait "${pid}" || fail_of "${names[${pid}]}" "failed"
      fi
    done
    waited=("${running[@]}")
    kill -0 "${pids[0]}" 2>/dev/null || fail_of "${names[${pids[0]}]}" "has ended"
    sleep 0.1
  done
  pids=("${pids[0]}")
}

# evaluate NAME: prints the validation loss of that run's merged model.
evaluate() {
  "${causeway}" evaluate "${work}/$1" --data "${data[@]}" --json \
    2>"${work}/evaluate.log" | perl -MJSON::PP -e '
      local $/;
      print decode_json(<STDIN>)->{loss}' 2>/dev/null || {
    fail_of evaluate "of the model of $1 failed"
  }
}
