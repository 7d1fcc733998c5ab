#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Compares the training speed with that of Debian's PyTorch on the same model
# and batch: both programs alternate (ABAB...), and the script prints the ratios
# of their best and of their median rounds. Needs the package python3-torch.

set -euo pipefail

if [[ "$*" == -h || "$*" == --help ]]; then
  echo "usage: tests/peers/compare_pytorch.sh [ROUNDS] [THREADS]"
  exit
fi
readonly ROUNDS=${1:-5}
readonly THREADS=${2:-2}
cd "$(dirname "$0")/../.."

if ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
  echo "compare_pytorch.sh: install python3-torch first" >&2
  exit 1
fi
# shellcheck source=deploy/bazel.sh
. deploy/bazel.sh
"${BAZEL[@]}" build --symlink_prefix=/ --noshow_progress //worker/model:train_benchmark >&2
benchmark="$("${BAZEL[@]}" info bazel-bin)/worker/model/train_benchmark"
readonly benchmark

# Without these settings PyTorch is two to three times slower: OpenBLAS 0.3.21
# does not know newer CPUs, malloc returns the activations to the kernel after
# each step, and OpenMP's spinning threads take time from those that work.
# OpenBLAS has threads of its own, which torch.set_num_threads does not reach.
pytorch_environment=(
  "GOMP_SPINCOUNT=1000"
  "OPENBLAS_NUM_THREADS=${THREADS}"
  "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=34359738368:glibc.malloc.top_pad=268435456:glibc.malloc.hugetlb=1"
)
if grep -qw avx512bw /proc/cpuinfo; then
  pytorch_environment+=("OPENBLAS_CORETYPE=SKYLAKEX")
fi

results=$(mktemp)
readonly results
trap 'rm -f "$results"' EXIT
for ((round = 1; round <= ROUNDS; ++round)); do
  "$benchmark" --threads="$THREADS" --repetitions=5 --bound=false |
    tee -a "$results"
  env "${pytorch_environment[@]}" /usr/bin/python3 \
    tests/peers/pytorch_train.py --threads="$THREADS" --repetitions=5 |
    tee -a "$results"
done

/usr/bin/python3 - "$results" <<'PYTHON'
import re
import statistics
import sys

best = {"causeway": [], "pytorch": []}
for line in open(sys.argv[1], encoding="ascii"):
    match = re.match(r"(causeway|pytorch): (\d+) tokens/s best", line)
    if match:
        best[match[1]].append(int(match[2]))
for name, rounds in best.items():
    print(f"{name}: tokens/s of each round {rounds}")
ratio = max(best["causeway"]) / max(best["pytorch"])
median = statistics.median(
    a / b for a, b in zip(best["causeway"], best["pytorch"]))
print(f"causeway / pytorch: {ratio:.2f} best against best, "
      f"{median:.2f} median of the rounds")
PYTHON
