#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes the Debian package: the programs with manual pages, completion and
# systemd units, and the C library.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

usage() {
  cat <<'USAGE'
usage: deploy/package.sh [--cpu_only] [--bin DIRECTORY] [DIRECTORY]

Writes causeway_VERSION_amd64.deb to DIRECTORY (default: .), for Debian 12 and
systems with its libraries.

  --cpu_only       build without CUDA even if it is there
  --bin DIRECTORY  take the programs from there, in folders as in bazel-bin,
                   instead of building them
USAGE
}

fail() {
  printf 'package: error: %s\n' "$*" >&2
  exit 1
}

cpu_only=false
bin=
read_options cpu_only bin "$@"
directory="${rest[0]:-.}"
rest=("${rest[@]:1}")
refuse_rest
if [[ -n "${bin}" ]]; then bin="$(realpath "${bin}")"; fi
mapfile -t options < <("${cpu_only}" || cuda_build_options)
for tool in dpkg-deb dpkg-shlibdeps pod2man patchelf; do
  command -v "${tool}" >/dev/null ||
    fail "${tool} is missing; install dpkg-dev, perl and patchelf"
done
mkdir -p "${directory}"
directory="$(realpath "${directory}")"
cd "${ROOT}"
# shellcheck source=deploy/version.sh
. deploy/version.sh
readonly MAINTAINER="The Causeway authors <causeway@causeway.invalid>"
readonly PROGRAMS=(server/causeway-coordinator worker/causeway-worker
  cli/causeway)
if [[ -z "${bin}" ]]; then
  labels=(//worker/embedding:libcauseway.so)
  for program in "${PROGRAMS[@]}"; do labels+=("//${program/\//:}"); done
  bin="$(bazel_build_once "${ROOT}" "${options[@]}" "${labels[@]}")"
fi

work="$(mktemp -d)"
readonly work
trap 'rm -rf "${work}"' EXIT
readonly tree="${work}/tree" doc=usr/share/doc/causeway

# put MODE FILE PATH: installs a file as PATH in the package.
put() { install -D -m "$1" "$2" "${tree}/$3"; }

for program in "${PROGRAMS[@]}" cli/causeway-sentencepiece; do
  put 755 "${bin}/${program}" "usr/bin/${program##*/}"
done
# A program that is linked with the library loads it by its interface's version.
abi="$(sed -n 's/^#define CAUSEWAY_ABI_VERSION //p' worker/embedding/causeway.h)"
readonly soname="libcauseway.so.${abi}" libraries=usr/lib/x86_64-linux-gnu
put 644 "${bin}/worker/embedding/libcauseway.so" "${libraries}/${soname}"
ln -s "${soname}" "${tree}/${libraries}/libcauseway.so"
put 644 worker/embedding/causeway.h usr/include/causeway.h
strip --strip-unneeded "${tree}"/usr/bin/* "${tree}/${libraries}/${soname}"
patchelf --set-soname "${soname}" "${tree}/${libraries}/${soname}"
for program in "${PROGRAMS[@]}"; do
  name="${program##*/}"
  perl deploy/package/manual.pl "${tree}/usr/bin/${name}" |
    pod2man --section=1 --center="Causeway" --release="${VERSION}" \
      --name="${name^^}" --date=- >"${work}/${name}.1"
  gzip -9n "${work}/${name}.1"
  put 644 "${work}/${name}.1.gz" "usr/share/man/man1/${name}.1.gz"
  put 644 deploy/package/completion.bash \
    "usr/share/bash-completion/completions/${name}"
done
for unit in deploy/package/*.service; do
  put 644 "${unit}" "usr/lib/systemd/system/${unit##*/}"
done
for defaults in deploy/package/*.default; do
  name="$(basename "${defaults}" .default)"
  put 644 "${defaults}" "etc/default/${name}"
done
put 644 deploy/quickstart.textproto etc/causeway/run.textproto
put 644 README.md "${doc}/README.md"
cat >"${work}/copyright" <<'COPYRIGHT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: causeway

Files: *
Copyright: 2026 The Causeway authors
License: Apache-2.0
 On Debian systems, the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
COPYRIGHT
put 644 "${work}/copyright" "${doc}/copyright"
cat >"${work}/changelog" <<CHANGELOG
causeway (${VERSION}) unstable; urgency=medium

  * Version ${VERSION}.

 -- ${MAINTAINER}  $(date -R -u -d "@$(stat -Lc %Y common/version.h)")
CHANGELOG
gzip -9n "${work}/changelog"
put 644 "${work}/changelog.gz" "${doc}/changelog.gz"
for example in deploy/slurm/island.sbatch deploy/grafana/*.json \
  deploy/prometheus/{prometheus,causeway.rules}.yml; do
  put 644 "${example}" "${doc}/examples/${example##*/}"
done
for page in docs/*.md; do put 644 "${page}" "${doc}/${page}"; done

# Finds the packages whose libraries the programs need, in versions that have
# the symbols.
mkdir -p "${work}/debian"
printf 'Source: causeway\n\nPackage: causeway\nArchitecture: amd64\n' \
  >"${work}/debian/control"
mapfile -t binaries < <(find "${tree}/usr/bin" "${tree}/usr/lib" -type f)
depends="$(cd "${work}" && dpkg-shlibdeps -O "${binaries[@]/#/-e}" \
  2>"${work}/shlibdeps.log")" || fail "$(<"${work}/shlibdeps.log")"

mkdir "${tree}/DEBIAN"
cat >"${tree}/DEBIAN/control" <<CONTROL
Package: causeway
Version: ${VERSION}
Architecture: amd64
Maintainer: ${MAINTAINER}
Section: science
Priority: optional
Installed-Size: $(du -sk "${tree}" | cut -f1)
Depends: ${depends#shlibs:Depends=}
Description: trains one language model on clusters joined by slow links
 A coordinator merges what islands (clusters) learn on their own, every H steps,
 by DiLoCo and its streaming form. This package has the coordinator, the worker
 that is an island, the command-line tool, and a C library for other trainers.
CONTROL
printf 'libcauseway %s causeway (>= %s)\n' "${abi}" "${VERSION}" \
  >"${tree}/DEBIAN/shlibs"
printf 'activate-noawait ldconfig\n' >"${tree}/DEBIAN/triggers"
(cd "${tree}" && find etc -type f -printf '/%p\n' | sort) \
  >"${tree}/DEBIAN/conffiles"
# Units are neither enabled nor started before an operator has said what to train.
cat >"${tree}/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
SCRIPT
cat >"${tree}/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl stop 'causeway-worker@*.service' causeway-coordinator.service
fi
SCRIPT
cp "${tree}/DEBIAN/postinst" "${tree}/DEBIAN/postrm"
chmod 755 "${tree}"/DEBIAN/{postinst,postrm,prerm}
find "${tree}" -type d -exec chmod 755 {} +
dpkg-deb --root-owner-group -Zxz --build "${tree}" \
  "${directory}/causeway_${VERSION}_amd64.deb"
