#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures what the wire format costs in loss, with DiLoCo: one fragment, no
# overlap.

set -euo pipefail

# The last ones send less than single pseudo-gradients need and rely on error
# feedback; the coordinator feeds its own errors back in any lossy format.
# shellcheck disable=SC2034  # for loss_runs.sh
readonly VARIANTS='
fp32      uplink_format: FP32 downlink_format: FP32
bf16      uplink_format: BF16 downlink_format: BF16
int8      uplink_format: INT8 downlink_format: INT8
int4      uplink_format: INT4 downlink_format: INT4
e3m0      uplink_format: E3M0 downlink_format: E3M0
ecq       uplink_format: ECQ downlink_format: ECQ
ecq_fine  uplink_format: ECQ downlink_format: ECQ ecq_distortion: 0.0125
ecq_ef    uplink_format: ECQ downlink_format: ECQ error_feedback: 1
ecq_2     uplink_format: ECQ downlink_format: ECQ ecq_bits: 2 error_feedback: 1
ecq_1.5   uplink_format: ECQ downlink_format: ECQ ecq_bits: 1.5 error_feedback: 1
'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly BASE='fragments: 1 overlap_steps: 0 entropy_coding: true'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly SUMMARY='Trains two islands once for every format and seed, both directions in that
format, and prints bits per parameter and validation loss. About 40 seconds a
run on two cores.'

# shellcheck source=tests/quality/loss_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/loss_runs.sh"
compare_losses "$@"
