#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Compares causeway.torch.Acco with PyTorch's DistributedDataParallel on two
# ranks with Gloo: what they learn from the same tokens, how much communication
# stands in their way on a slow link, and how much a slow rank costs them.

set -euo pipefail

# shellcheck source=tests/comparison.sh
. "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

usage() {
  cat <<'USAGE'
usage: tests/acco/pytorch.sh [--json FILE] [--parts LIST] [--seeds LIST]
                             [--steps N] [--rate R] [--wait S] [--keep]

  --json FILE   write the figures as JSON
  --parts LIST  of convergence,overlap,heterogeneity (default: all of them)
  --seeds LIST  seeds of the convergence runs (default: 1,2)
  --steps N     steps of a convergence run (default: 1500)
  --rate R      peak learning rate of such a run (default: 2e-4)
  --wait S      overlap and heterogeneity: wait S seconds for each micro-batch
                instead of computing it
  --keep        keep the working directory

Convergence gives the same losses under any load: each rank computes a fixed
number of micro-batches. The times of the other parts mean something only on a
machine that has nothing else to do, or with --wait. Overlap needs root, for two network
namespaces with a shaped link; without root that part is skipped with a message.
USAGE
}

parts=convergence,overlap,heterogeneity
seeds=1,2
steps=1500
rate=2e-4
wait=
parse_flags "json parts seeds steps rate wait" "$@"
cd "${ROOT}"

# train NAME FLAG...: trains on two ranks: at the ends of the link if `apart` is
# true, else over loopback, with rank 1 slowed down if `slow` is true.
apart=false
slow=false
train() {
  local name="$1" rank pid device=lo within=() waits=()
  shift
  for rank in 0 1; do
    if [[ "${apart}" == true ]]; then
      within=(ip netns exec "${zone}-${rank}")
      device="${devices[rank]}"
    fi
    if [[ -n "${wait}" ]]; then
      waits=(--wait "$(calculate 's * (slow == "true" && rank ? 4 : 1)' \
        "s=${wait}" "slow=${slow}" "rank=${rank}")")
    fi
    # OpenBLAS has threads of its own.
    start "${name}-rank${rank}" "${within[@]}" env OPENBLAS_NUM_THREADS=1 \
      GLOO_SOCKET_IFNAME="${device}" python/run_test.sh \
      tests/acco/pytorch_train.py --rank "${rank}" \
      --store "${work}/${name}.store" --data "${data[0]}" "$@" \
      "${waits[@]}"
  done
  if [[ "${slow}" == true && -z "${wait}" ]]; then slow_down "${pids[1]}"; fi
  for pid in "${pids[@]}"; do
    wait "${pid}" || fail_of "${names[${pid}]}" "failed"
  done
  pids=()
}

# measured NAME: prints rank 0's figures: pytorch_train.py says which.
measured() { tail -n 1 "${work}/$1-rank0.log"; }

convergence() {
  local wait='' mode seed name tokens loss losses
  for mode in torch acco; do
    losses=
    for seed in ${seeds//,/ }; do
      name="seed-${seed}-${mode}"
      train "${name}" --mode "${mode}" --seed "${seed}" --steps "${steps}" \
        --rate "${rate}" --fixed
      read -r _ _ _ _ tokens _ loss < <(measured "${name}")
      losses+="${losses:+, }${loss}"
      say "convergence, ${mode}, seed ${seed}:" \
        "  ${tokens} tokens, validation loss ${loss}"
    done
    figure "val_loss_${mode/torch/ddp}" "[${losses}]"
  done
}

overlap() {
  add_network || return 0
  local apart=true ratio step parameters rate slow_step ddp acco bare busy
  local ddp_exposed=() acco_exposed=() speedup=()
  for ratio in 0.5 1 2; do
    train "free-${ratio}" --mode torch --steps 25
    read -r step _ _ _ _ parameters _ < <(measured "free-${ratio}")
    # Each rank sends half of the gradients, twice.
    rate="$(calculate 'int(8 * 4 * n / (ratio * step))' "n=${parameters}" \
      "ratio=${ratio}" "step=${step}")"
    shape "${rate}"
    train "link-${ratio}-torch" --mode torch --steps 25
    read -r slow_step ddp _ < <(measured "link-${ratio}-torch")
    train "link-${ratio}-acco" --mode acco --steps 25
    read -r _ acco busy bare _ < <(measured "link-${ratio}-acco")
    unshape
    ddp_exposed+=("$(calculate '(with / without - 1) / ratio' \
      "with=${slow_step}" "without=${step}" "ratio=${ratio}")")
    acco_exposed+=("$(calculate 'bare / busy' "bare=${bare}" "busy=${busy}")")
    speedup+=("$(calculate 'a / d' "a=${acco}" "d=${ddp}")")
    say "overlap, communication ${ratio} of computing:" \
      "  DDP ${ddp} tokens/s, ${ddp_exposed[-1]} of its communication exposed" \
      "  ACCO ${acco} tokens/s, ${acco_exposed[-1]} exposed"
  done
  local IFS=,
  figure ddp_exposed_share "[${ddp_exposed[*]}]"
  figure acco_exposed_share "[${acco_exposed[*]}]"
  figure overlap_speedup "[${speedup[*]}]"
}

heterogeneity() {
  local slow=true ddp acco
  train slow-torch --mode torch --steps 25
  read -r _ ddp _ < <(measured slow-torch)
  train slow-acco --mode acco --steps 25
  read -r _ acco _ < <(measured slow-acco)
  figure heterogeneous_speedup "$(calculate 'a / d' "a=${acco}" "d=${ddp}")"
  say "heterogeneity: ACCO ${acco} tokens/s, DDP ${ddp}"
}

work="$(mktemp -d -t causeway-acco-XXXXXX)"
finish_on_exit
deploy/install_deps.sh test quickstart
use_perl_manual
run_parts convergence overlap heterogeneity
