#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the image twice, and runs a coordinator and an island from it, which
# enrols with a token, without privileges, on a read-only root.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

need_root_and podman runc

work="$(mktemp -d)"
readonly work
storage=(--root "${work}/storage" --runroot "${work}/run"
  --storage-driver vfs --runtime runc --cgroup-manager cgroupfs)
podman() { command podman "${storage[@]}" "$@"; }
finish() {
  local code=$? name
  trap - EXIT
  if ((code != 0)); then
    for name in coordinator island; do podman logs "${name}" || true; done
  fi
  podman rm --all --force --time 0 >/dev/null 2>&1 || true
  podman rmi --all --force >/dev/null 2>&1 || true
  rm -rf "${work}"
  exit "${code}"
}
trap finish EXIT
build() {
  # The folder of --bin is relative to the caller's.
  (cd deploy && container/build.sh --cpu_only --bin .. "${storage[@]}") \
    >"${work}/log" 2>&1
}
if ! build; then
  # Some machines allow no container at all.
  if command podman "${storage[@]}" info >/dev/null 2>&1; then
    fail "$(<"${work}/log")"
  fi
  skip "podman does not work here: $(tail -n 1 "${work}/log")"
fi
if (cd deploy && container/build.sh --bin container) >"${work}/log" 2>&1; then
  fail "an image without programs"
fi
grep -q -- '--bin: there is no .*/server/causeway-coordinator$' "${work}/log" ||
  fail "$(<"${work}/log")"
image="$(podman images --quiet --no-trunc localhost/causeway)"
build || fail "$(<"${work}/log")"
[[ "$(podman images --quiet --no-trunc localhost/causeway)" == "${image}" ]] ||
  fail "the same programs made another image"
[[ "$(podman image inspect --format '{{.Config.User}}' "${image}")" == \
  65532:65532 ]] || fail "the image runs as another user"

# run NAME VOLUME COMMAND...: starts a container.
run() {
  mkdir -p "${work}/$2"
  chown 65532:65532 "${work}/$2"
  podman run --detach --name "$1" --network host --read-only \
    --read-only-tmpfs=false --cap-drop all --security-opt no-new-privileges \
    --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
    --volume "${work}/$2:/state" \
    --volume /usr/share/common-licenses:/data:ro "${image}" "${@:3}" >/dev/null
}
# logged NAME TEXT: succeeds if a container's log has a line with TEXT.
logged() { podman logs "$1" 2>&1 | grep "$2" >/dev/null; }
# stopped NAME CODE: sends SIGTERM and expects an exit code.
stopped() {
  local code
  podman stop --time 30 "$1" >/dev/null
  code="$(podman inspect --format '{{.State.ExitCode}}' "$1")"
  [[ "${code}" == "$2" ]] || fail "$1 exited with ${code}, not $2"
}

mkdir "${work}/state"
cat >"${work}/state/run.textproto" <<'RUN'
name: "container"
model {
  layers: 1 hidden_size: 16 intermediate_size: 32 heads: 2 sequence_length: 16
}
training { total_steps: 1000000 batch_size: 1 learning_rate: 1e-3 }
synchronization { inner_steps_per_round: 20 }
RUN
run coordinator state causeway-coordinator --config run.textproto \
  --state_dir run --listen 127.0.0.1:0 --port_file port --tls auto
eventually logged coordinator 'waiting for islands'
address="127.0.0.1:$(<"${work}/state/port")"
# The image has no authorities of a system, which gRPC asks for by default.
token="$(podman exec coordinator causeway token create --island east \
  --coordinator "${address}" --tls run/tls/operator)"
run island island causeway-worker --coordinator "${address}" --tls tls \
  --join "${token}" --data /data/GPL-3 \
  --checkpoint_dir checkpoint --threads 1 --interrupted_exit_code 75
eventually logged coordinator 'fragment 0 is at version 2'
if podman exec island /bin/sh -c true 2>/dev/null; then fail "a shell"; fi
[[ "$(podman exec island causeway --version)" == causeway\ * ]]
stopped island 75
eventually logged coordinator 'island east .* left: SIGTERM'
stopped coordinator 0
