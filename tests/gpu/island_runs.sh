# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Whole runs for the scripts of this folder that source this file: a coordinator
# and islands on one machine. Such a script defines usage(), which prints its help.
# `work` is a directory that is removed at the end.

# shellcheck source=deploy/read_options.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../deploy/read_options.sh"

bin=
work=
pids=()

finish() {
  local code=$?
  if ((${#pids[@]})); then kill "${pids[@]}" 2>/dev/null || true; fi
  rm -rf "${work}"
  exit "${code}"
}

# prepare_runs BIN TEXT...: prepares runs of the programs in the directory BIN,
# whose islands learn the bytes of the files TEXT.
prepare_runs() {
  if (($# < 2)); then
    usage >&2
    exit 2
  fi
  bin="$1"
  shift
  work="$(mktemp -d)"
  trap finish EXIT
  cat -- "$@" >"${work}/text"
}

# train NAME DEVICE ISLANDS: makes a whole run of work/NAME.config; the logs of
# its islands are work/NAME-I.log.
train() {
  local name="$1" address i code=0
  "${bin}/causeway-coordinator" --config "${work}/${name}.config" \
    --state_dir "${work}/${name}" --listen 127.0.0.1:0 \
    --port_file "${work}/${name}.port" >"${work}/${name}.log" 2>&1 &
  pids=($!)
  for ((i = 0; i < 300; ++i)); do
    if [[ -s "${work}/${name}.port" ]]; then break; fi
    if ! kill -0 "${pids[0]}" 2>/dev/null; then
      cat "${work}/${name}.log" >&2
      exit 1
    fi
    sleep 0.1
  done
  address="127.0.0.1:$(<"${work}/${name}.port")"
  for ((i = 0; i < $3; ++i)); do
    "${bin}/causeway-worker" --coordinator "${address}" --island "${name}-${i}" \
      --data "${work}/text" --device "$2" --log_seconds 0 \
      >"${work}/${name}-${i}.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]:1}"; do wait "${pid}" || code=$?; done
  kill "${pids[0]}" 2>/dev/null || true
  wait "${pids[0]}" 2>/dev/null || true
  pids=()
  if ((code != 0)); then
    if grep -hE 'looking for CUDA devices|built without CUDA' \
      "${work}/${name}"-*.log; then
      exit 77
    fi
    tail -n 5 "${work}/${name}"*.log >&2
    exit 1
  fi
}
