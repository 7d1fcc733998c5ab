#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes the package, checks its units, installs it in a copy of this machine with
# a systemd of its own, and starts a run there. Skips the copy if systemd-nspawn
# is missing or may not boot.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

work="$(mktemp -d)"
machine=
leader=
finish() {
  local code=$?
  trap - EXIT
  if ((code != 0)) && [[ -n "${leader}" ]]; then
    inside journalctl --no-pager -n 60 -u 'causeway-*' || true
  fi
  if [[ -n "${machine}" ]]; then
    kill "${machine}" 2>/dev/null || true
    wait "${machine}" 2>/dev/null || true
  fi
  umount "${work}/system" "${work}/layers" 2>/dev/null || true
  rm -rf "${work}"
  exit "${code}"
}
trap finish EXIT
# Runs a command in the machine.
inside() { nsenter -t "${leader}" -a "$@"; }

# Paths in its arguments are relative to the caller's folder.
(cd "${work}" && "${OLDPWD}/deploy/package.sh" \
  --bin "$(realpath --relative-to . "${OLDPWD}")" . >log 2>&1) ||
  fail "$(<"${work}/log")"
package="$(echo "${work}"/causeway_*_amd64.deb)"
dpkg-deb --extract "${package}" "${work}/tree"
for manual in "${work}"/tree/usr/share/man/man1/*; do
  zcat "${manual}" | grep -F '\-\-tls' >/dev/null ||
    fail "${manual} names no flag"
done

echo "== what Debian's policy asks for"
for page in "${work}"/tree/usr/share/man/man1/*; do
  command -v man >/dev/null || continue
  wide="$(MANWIDTH=80 man -l "${page}" 2>/dev/null | col -bx | grep '.\{81\}')" &&
    fail "${page##*/} has lines of more than 80 columns: ${wide}"
done
libraries="${work}/tree/usr/lib/x86_64-linux-gnu"
soname="$(basename "$(readlink "${libraries}/libcauseway.so")")"
readelf -d "${libraries}/libcauseway.so" | grep -F "soname: [${soname}]" \
  >/dev/null || fail "libcauseway.so has another name than ${soname}"
dpkg-deb --control "${package}" "${work}/control"
grep -x 'activate-noawait ldconfig' "${work}/control/triggers" >/dev/null ||
  fail "nobody tells the loader of ${soname}"
zcat "${work}/tree/usr/share/doc/causeway/changelog.gz" >"${work}/changelog"
[[ "$(dpkg-parsechangelog -l "${work}/changelog" -S Version)" == \
  "$(dpkg-deb -f "${package}" Version)" ]] || fail "the changelog is of another"
# This package is large, so lintian is not installed for the test alone.
if command -v lintian >/dev/null; then
  # Lesser complaints are about Debian's archive.
  lintian --allow-root --fail-on error "${package}" || fail "lintian"
fi

echo "== units"
units=("${work}"/tree/usr/lib/systemd/system/*)
# Complaints about keys that systemd does not know leave the exit code at 0.
mkdir "${work}/units"
for unit in "${units[@]}"; do
  sed "s|/usr/bin/causeway|${work}/tree&|" "${unit}" \
    >"${work}/units/${unit##*/}"
done
complaints="$(systemd-analyze verify --man=no "${work}"/units/* 2>&1)" || true
[[ -z "${complaints}" ]] || fail "${complaints}"
systemd-analyze security --offline=true --threshold=20 "${units[@]}" \
  >"${work}/log" 2>&1 || fail "$(<"${work}/log")"

echo "== completion"
completions() {
  # shellcheck source=deploy/package/completion.bash
  PATH="${work}/tree/usr/bin:${PATH}" bash -c '
    . deploy/package/completion.bash
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _causeway "$1"
    echo "${COMPREPLY[*]}"' bash "$@"
}
[[ "$(completions causeway qu)" == quarantine ]] || fail "a command"
[[ "$(completions causeway export --dty)" == --dtype ]] || fail "its flag"
[[ "$(completions causeway token re)" == revoke ]] || fail "an action"
[[ "$(completions causeway quarantine '')" == "list admit drop" ]] ||
  fail "all actions"
[[ "$(completions causeway-worker --data_w)" == --data_weights ]] ||
  fail "a daemon's flag"

echo "== machine"
need_root_and systemd-nspawn nsenter
mkdir "${work}/layers" "${work}/system"
if ! mount -t tmpfs tmpfs "${work}/layers" ||
  ! mkdir "${work}/layers/upper" "${work}/layers/work" ||
  ! mount -t overlay overlay "${work}/system" -o \
    "lowerdir=/,upperdir=${work}/layers/upper,workdir=${work}/layers/work"; then
  skip "this machine may not mount an overlay of its root"
fi
cp "${package}" "${work}/system/causeway.deb"
mkdir -p "${work}/system/etc/systemd/system"
cat >"${work}/system/etc/systemd/system/package-test.target" <<'TARGET'
[Unit]
Requires=basic.target
After=basic.target
TARGET
systemd-nspawn -q --register=no --keep-unit --private-network \
  --machine="causeway-$$" -D "${work}/system" \
  -b systemd.unit=package-test.target systemd.log_target=console \
  </dev/null >"${work}/boot.log" 2>&1 &
machine=$!
booted() {
  leader="$(pgrep -P "${machine}" | head -n 1)" && [[ -n "${leader}" ]] &&
    [[ "$(inside systemctl is-active package-test.target)" == active ]]
} 2>/dev/null
deadline=$((SECONDS + 30))
until booted; do
  if ((SECONDS > deadline)) || ! kill -0 "${machine}" 2>/dev/null; then
    leader=
    skip "systemd-nspawn does not boot: $(tail -n 3 "${work}/boot.log")"
  fi
  sleep 0.1
done

says() { inside journalctl --no-pager -u "$1" | grep "$2" >/dev/null; }
property() { inside systemctl show --value -p "$1" "$2"; }

begin="$(date +%s%N)"
inside apt-get install -y -q /causeway.deb >"${work}/log" 2>&1 ||
  fail "$(<"${work}/log")"
installed="$(date +%s%N)"
inside systemctl start causeway-coordinator causeway-worker@{one,two}
eventually says causeway-coordinator 'fragment 0 is at version 1'
printf 'first merged round %d ms after apt-get began, %d ms after it ended\n' \
  $((($(date +%s%N) - begin) / 1000000)) \
  $((($(date +%s%N) - installed) / 1000000))
[[ "$(property StatusText causeway-coordinator)" == "port 7070, run RUNNING" ]]
[[ "$(property StatusText causeway-worker@two)" == \
  "island two of run quickstart" ]]
inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/9470
  printf "GET /readyz HTTP/1.0\r\n\r\n" >&3
  grep "^HTTP/1.1 200" <&3' >/dev/null || fail "the coordinator is not ready"
inside systemctl stop causeway-worker@{one,two} causeway-coordinator
for unit in causeway-worker@{one,two} causeway-coordinator; do
  [[ "$(property Result "${unit}")" == success ]] || fail "${unit} failed"
done
says causeway-coordinator 'island one .* left: SIGTERM' || fail "one did not leave"

echo "== certificates, and a daemon that hangs"
inside bash -eux >"${work}/log" 2>&1 <<'SCRIPT' || fail "$(<"${work}/log")"
rm -r /var/lib/private/causeway*
sed -i '/^CAUSEWAY_TLS=/d' /etc/default/causeway-*
sed -i 's/min_islands: 2/min_islands: 1/' /etc/causeway/run.textproto
mkdir /run/systemd/system/causeway-coordinator.service.d
printf '[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n' \
  >/run/systemd/system/causeway-coordinator.service.d/watchdog.conf
systemctl daemon-reload
systemctl start causeway-coordinator
(umask 077 && causeway token create --island three \
  --tls /var/lib/causeway/run/tls/operator >/etc/causeway/three.token)
systemctl start causeway-worker@three
rm /etc/causeway/three.token
systemctl kill -s STOP causeway-coordinator
SCRIPT
restarted() { [[ "$(property NRestarts causeway-coordinator)" == 1 ]]; }
eventually restarted
eventually says causeway-coordinator 'continuing run'
inside touch /run/causeway-worker/three/kept
inside systemctl restart causeway-worker@three
inside test -e /run/causeway-worker/three/kept ||
  fail "a restart removes checkpoints in memory"

echo "== a run file with a mistake"
inside bash -c 'echo "trainings {}" >>/etc/causeway/run.textproto
  systemctl stop causeway-worker@three causeway-coordinator
  systemctl reset-failed
  ! systemctl start causeway-coordinator' >"${work}/log" 2>&1 ||
  fail "$(<"${work}/log")"
says causeway-coordinator 'Allowed: name, ' || fail "no reason is given"
[[ "$(property NRestarts causeway-coordinator)" == 0 &&
  "$(property ActiveState causeway-coordinator)" == failed ]] ||
  fail "a start that cannot succeed is repeated"
inside apt-get remove -y -q causeway >"${work}/log" 2>&1 ||
  fail "$(<"${work}/log")"
[[ -z "$(inside systemctl list-units -q --state=active 'causeway*')" ]] ||
  fail "a unit runs on after the removal"
