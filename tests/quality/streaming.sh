#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures what the ways of synchronizing cost in loss, at equal tokens and
# steps.

set -euo pipefail

# Data parallel is one island of two ranks with the batch of two islands; the
# coordinator takes its parameters unchanged. tau_39 applies an update after
# nearly a whole round; if the guard against outliers ends such a run, its loss
# is unknown.
# shellcheck disable=SC2034  # for loss_runs.sh
readonly VARIANTS='
diloco
data_parallel  training.batch_size: 16 training.micro_batch_size: 8 data.shards: 1 outer_optimizer.algorithm: SGD outer_optimizer.learning_rate: 1 membership.min_islands: 1
tau_1          fragments: 3 overlap_steps: 1
tau_5          fragments: 3 overlap_steps: 5
e3m0           fragments: 3 overlap_steps: 5 uplink_format: E3M0 downlink_format: E3M0
int4           fragments: 3 overlap_steps: 5 uplink_format: INT4 downlink_format: INT4
tau_39         fragments: 3 overlap_steps: 39 membership.outlier_factor: 0
'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly BASE='fragments: 1 overlap_steps: 0 uplink_format: FP32 downlink_format: FP32'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly SUMMARY='Trains once for every way of synchronizing and seed, and prints validation
loss: DiLoCo, data parallel, Streaming DiLoCo in three fragments with updates
applied 1, 5 or 39 of 40 inner steps later, and with lossy formats. About 40
seconds a run on two cores.'

# shellcheck source=tests/quality/loss_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/loss_runs.sh"
compare_losses "$@"
