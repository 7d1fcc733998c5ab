#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the kustomizations and checks them; with kubernetes-validate of
# tests/pytorch/environment.sh, also against the schema of Kubernetes.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh
# shellcheck source=deploy/version.sh
. deploy/version.sh

command -v kubectl >/dev/null || skip "there is no kubectl"
/usr/bin/python3 -c 'import yaml' || skip "there is no python3-yaml"

work="$(mktemp -d)"
readonly work
readonly validate="${CAUSEWAY_PYTORCH2:-}/bin/kubernetes-validate"
trap 'rm -rf "${work}"' EXIT
cp -rL deploy/{kubernetes,prometheus} "${work}"
chmod -R u+w "${work}"
deploy/kubernetes/write_rules.sh "${work}"
diff deploy/kubernetes/alerts/rules.yaml "${work}/kubernetes/alerts/rules.yaml"
# docs/kubernetes.md shows these kustomizations.
mkdir "${work}/run" "${work}/elected" "${work}/north" "${work}/south"
cat >"${work}/run/kustomization.yaml" <<'YAML'
namespace: causeway
resources:
  - ../kubernetes/coordinator
components:
  - ../kubernetes/monitoring
  - ../kubernetes/alerts
YAML
cat >"${work}/elected/kustomization.yaml" <<'YAML'
namespace: causeway
resources:
  - ../kubernetes/coordinators
components:
  - ../kubernetes/monitoring
  - ../kubernetes/alerts
configMapGenerator:
  - name: election
    behavior: merge
    literals: ["ETCD=etcd-0.etcd:2379,etcd-1.etcd:2379,etcd-2.etcd:2379"]
YAML
cat >"${work}/north/kustomization.yaml" <<'YAML'
namespace: causeway
resources:
  - ../kubernetes/island_gpu
components:
  - ../kubernetes/monitoring
configMapGenerator:
  - name: island
    behavior: merge
    literals:
      - COORDINATOR=198.51.100.7:7070
      - SIZE=2
      - LEAST=1
      - LEADERS=island-0.island:7100,island-1.island:7100
patches:
  - target:
      kind: Job
    patch: |-
      - {op: replace, path: /spec/completions, value: 2}
      - {op: replace, path: /spec/parallelism, value: 2}
YAML
cat >"${work}/south/kustomization.yaml" <<'YAML'
namespace: causeway
resources:
  - ../kubernetes/island
components:
  - ../kubernetes/own_authority
configMapGenerator:
  - name: island
    behavior: merge
    literals:
      - ISLAND=south
      - COORDINATOR=coordinator-0.coordinator:7070,coordinator-1.coordinator:7070,coordinator-2.coordinator:7070
YAML
for folder in kubernetes/{coordinator,island,island_gpu} run elected north \
  south; do
  kubectl kustomize "${work}/${folder}" >"${work}/objects.yaml"
  printf '%s: ' "${folder}"
  /usr/bin/python3 deploy/kubernetes/check.py "${VERSION}" \
    <"${work}/objects.yaml"
  if [[ -x "${validate}" ]]; then
    # Otherwise it warns of other projects' kinds, which it does not know.
    "${validate}" --strict --quiet --no-warn "${work}/objects.yaml"
  fi
done
# An island of your authority neither waits for a token's secret nor reads it.
grep -F 'secretName: island-tls' "${work}/objects.yaml" >/dev/null ||
  fail "south mounts no certificate"
! grep -F token "${work}/objects.yaml" || fail "south has a token"
