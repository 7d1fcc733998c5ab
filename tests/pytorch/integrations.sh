#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Tests Causeway with Hugging Face's transformers: each loads the other's
# models, and callbacks make trainers islands. Needs PyPI (environment.sh).

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

usage() { echo "usage: tests/pytorch/integrations.sh [--json FILE]"; }

json=
failed=0
read_options "" json "$@"
refuse_rest
if [[ -n "${json}" ]]; then json="$(realpath "${json}")"; fi
cd "${ROOT}"
pytorch2="$(tests/pytorch/environment.sh)"
mapfile -t display < <(bazel_display_options)

# run_test NAME VARIABLE...: runs a test with these variables.
run_test() {
  "${BAZEL[@]}" run "${display[@]}" \
    --run_under="env CAUSEWAY_PYTORCH2=${pytorch2} ${*:2}" \
    "//tests/pytorch:$1_pytorch2"
}

callbacks=
# test_callback NAME TEST: adds a name to `callbacks` if the test passes.
test_callback() {
  if run_test "$2"; then callbacks+="${callbacks:+,}$1"; else failed=1; fi
}
test_callback causeway.transformers.CausewayCallback trainer_test
test_callback causeway.lightning.CausewayCallback lightning_test
test_callback accelerate accelerate_test
test_callback peft lora_test
run_test transformers_test INTEGRATIONS_JSON="${json}" \
  INTEGRATIONS_CALLBACKS="${callbacks}"
((!failed))
