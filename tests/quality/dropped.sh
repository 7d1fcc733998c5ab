#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures what lost contributions cost in loss, as in section 4 of the DiLoCo
# paper (arXiv 2311.08105): each is left out with some probability, and its
# island continues with its own parameters.

set -euo pipefail

# shellcheck disable=SC2034  # for loss_runs.sh
readonly VARIANTS='
dropped_0
dropped_30  membership.drop_contributions: 0.3
dropped_50  membership.drop_contributions: 0.5
'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly BASE='fragments: 1 overlap_steps: 0 uplink_format: FP32 downlink_format: FP32 membership.min_islands: 4 membership.max_islands: 4 data.shards: 4'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly SUMMARY='Trains four islands by DiLoCo, once for every share of contributions that are
dropped at random and seed, and prints validation loss. About 80 seconds a run on
two cores.'

# shellcheck source=tests/quality/loss_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/loss_runs.sh"
compare_losses "$@"
