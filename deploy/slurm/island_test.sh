#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Tests which ends of an island's tasks make island.sbatch queue its job again,
# with programs in place of Slurm's.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

work="$(mktemp -d)"
readonly work
trap 'rm -rf "${work}"' EXIT

mkdir "${work}/bin"
# The job's script is the parent of srun. As tasks do, srun ends some time after
# the notice. With a real scontrol, Slurm would end the script.
cat >"${work}/bin/srun" <<'SRUN'
#!/bin/bash
echo srun >>"${CALLS}"
if [[ -n "${SIGNAL}" ]]; then
  notice="$*"
  notice="${notice##*--preemption_notice_file }"
  kill -s "${SIGNAL}" "${PPID}"
  until [[ -e "${notice}" ]]; do sleep 0.01; done
fi
exit "${CODE}"
SRUN
cat >"${work}/bin/scontrol" <<'SCONTROL'
#!/bin/bash
echo "$*" >>"${CALLS}"
exit 1
SCONTROL
chmod +x "${work}/bin"/*

# expect SIGNAL CODE CALLS: expects these calls of srun and scontrol, on one line,
# if the script gets a signal while its tasks run, and srun ends with a code.
expect() {
  local code=0
  : >"${work}/calls"
  SIGNAL="$1" CODE="$2" CALLS="${work}/calls" PATH="${work}/bin:${PATH}" \
    SLURM_SUBMIT_DIR="${work}" SLURM_JOB_NAME=island SLURM_JOB_ID=7 \
    SLURM_JOB_NUM_NODES=1 SLURM_NTASKS=1 \
    bash deploy/slurm/island.sbatch 2>"${work}/errors" || code=$?
  [[ "$(paste -s -d ' ' "${work}/calls")" == "$3" && "${code}" == "$2" ]] ||
    fail "after ${1:-no signal} and code $2: $(<"${work}/calls"), code ${code}:" \
      "$(<"${work}/errors")"
}

readonly requeued='srun requeue 7'
# The island has left, whoever has told it to.
expect '' 75 "${requeued}"
expect USR1 75 "${requeued}"
# A rank died meanwhile.
for code in 1 134 137; do expect USR1 "${code}" "${requeued}"; done
# Another start would be of no use.
for code in 0 2 3; do
  expect '' "${code}" srun
  expect USR1 "${code}" srun
done
# A rank died before, so the island starts again here.
expect '' 134 'srun srun srun'
# Slurm itself ends the job.
for code in 75 134; do expect TERM "${code}" srun; done
