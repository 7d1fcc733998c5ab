#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a cluster of two nodes with Debian's Slurm on this machine. Two islands of
# two ranks train as jobs, one of them below a supervisor. The other one is
# pre-empted and comes back, and the run finishes with both.

set -euo pipefail

# shellcheck source=tests/testing.sh
. tests/testing.sh

need_root_and munged slurmctld slurmd sbatch

work="$(mktemp -d)"
readonly work root="${PWD}"
pids=()
finish() {
  local code=$? pid deadline
  trap - EXIT
  if ((code != 0)); then
    tail -n 30 "${work}"/*.log "${work}"/out/* || true
  fi
  # Daemons that end before their jobs would leave the jobs behind.
  if [[ -n "${SLURM_CONF:-}" ]]; then
    scancel --user root || true
    deadline=$((SECONDS + 20))
    while [[ -n "$(squeue -h 2>/dev/null)" ]] && ((SECONDS < deadline)); do
      sleep 0.1
    done
  fi
  for pid in "${pids[@]}"; do kill "${pid}" 2>/dev/null || true; done
  wait
  rm -rf "${work}"
  exit "${code}"
}
trap finish EXIT
trap 'exit 143' TERM
# start NAME COMMAND...: runs a daemon with its output in NAME.log.
start() {
  "${@:2}" >"${work}/$1.log" 2>&1 </dev/null &
  pids+=($!)
}

# These are below the ports that programs get if they ask for any free one.
mapfile -t ports < <(perl -MIO::Socket::INET -e '
  my @sockets;
  while (@sockets < 3) {
    my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1",
      LocalPort => 10000 + int(rand(22000)));
    push @sockets, $socket if $socket;
  }
  print $_->sockport, "\n" for @sockets')
mkdir -p "${work}"/{spool/n1,spool/n2,state,out}
head -c 1024 /dev/urandom >"${work}/munge.key"
chmod 600 "${work}/munge.key"
chmod 755 "${work}"
cat >"${work}/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=${work}/munge.sock,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort=${ports[0]}
StateSaveLocation=${work}/state
SlurmdSpoolDir=${work}/spool/%n
SlurmctldPidFile=${work}/slurmctld.pid
SlurmdPidFile=${work}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=100000
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=5
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=2 State=UNKNOWN
PartitionName=low Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes=n[1-2] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
cat >"${work}/cgroup.conf" <<'CONF'
CgroupPlugin=cgroup/v1
ConstrainCores=no
ConstrainRAMSpace=no
CONF
cat >"${work}/run.textproto" <<'RUN'
name: "slurm"
model {
  layers: 2 hidden_size: 32 intermediate_size: 64 heads: 2 sequence_length: 32
}
training {
  total_steps: 600 batch_size: 4 micro_batch_size: 1 learning_rate: 5e-3
}
synchronization { inner_steps_per_round: 20 }
# The island is away for some rounds.
storage { update_history: 1000 }
membership { min_islands: 2 quorum: 2 lease_seconds: 10 heartbeat_seconds: 0.2 }
RUN
export SLURM_CONF="${work}/slurm.conf"

start munged munged --force --foreground --key-file="${work}/munge.key" \
  --socket="${work}/munge.sock" --pid-file="${work}/munged.pid" \
  --log-file="${work}/munge.log" --seed-file="${work}/munge.seed"
eventually test -S "${work}/munge.sock"
start slurmctld slurmctld -D -f "${SLURM_CONF}"
start n1 slurmd -D -N n1 -f "${SLURM_CONF}"
start n2 slurmd -D -N n2 -f "${SLURM_CONF}"
idle() { [[ "$(sinfo -h -p low -t idle -o %D 2>/dev/null)" == 2 ]]; }
eventually idle
start coordinator server/causeway-coordinator --config "${work}/run.textproto" \
  --state_dir "${work}/run" --listen 127.0.0.1:0 --port_file "${work}/port"
eventually test -s "${work}/port"
address="127.0.0.1:$(<"${work}/port")"

# This srun prints how many processors it gives to a task.
mkdir "${work}/bin"
cat >"${work}/bin/srun" <<SRUN
#!/bin/bash
echo "tasks with \${SRUN_CPUS_PER_TASK:-some} processors"
exec "$(type -P srun)" "\$@"
SRUN
chmod +x "${work}/bin/srun"
# island NAME NODE TASKS CPUS [SUPERVISE]: submits an island with as many
# processors for each task; prints the job's number.
island() {
  (cd "${work}" && CAUSEWAY_WORKER="${root}/worker/causeway-worker" \
    CAUSEWAY_SUPERVISE="${5-}" PATH="${work}/bin:${PATH}" \
    sbatch --cpus-per-task "$4" \
    --parsable --job-name "$1" --nodelist "$2" --ntasks "$3" \
    --output "${work}/out/$1" "${root}/deploy/slurm/island.sbatch" \
    --coordinator "${address}" --data /usr/share/common-licenses/GPL-3 \
    --threads 1 --checkpoint_steps 10 --simulated_step_seconds 0.03)
}
has_happened() { grep "$1" "${work}/coordinator.log" >/dev/null; }
job() { scontrol show job "$1" | grep -o "$2=[^ ]*" | cut -d= -f2; }
is_done() { [[ "$(job "$1" JobState)" == COMPLETED ]]; }

east="$(island east n1 1 2 2)"
west="$(island west n2 2 1)"
eventually has_happened 'fragment 0 is at version 3'
(cd "${work}" && sbatch --job-name guest --partition high --nodelist n2 \
  --exclusive --output "${work}/out/guest" --wrap 'sleep 1')
eventually has_happened 'island west (incarnation 1) left: pre-emption notice'
eventually has_happened 'island west joined (incarnation 2'
eventually is_done "${east}"
eventually is_done "${west}"
grep -q 'tasks with 2 processors' "${work}/out/east" ||
  fail "the task of east does not get the job's processors"
grep -q 'continuing from the checkpoint' "${work}/out/west" ||
  fail "west did not come back from its checkpoint"
[[ "$(job "${east}" Restarts)$(job "${west}" Restarts)" == 01 ]] ||
  fail "jobs were started again another number of times"
cli/causeway status --coordinator "${address}" --json >"${work}/status.json"
perl -MJSON::PP -e '
  local $/;
  my $run = decode_json(<STDIN>)->{run};
  my %ledger = %{$run->{ledger}};
  my $reported = delete $ledger{reported};
  my $sum = 0;
  $sum += $_ for values %ledger;
  die "the run is $run->{state}\n" if $run->{state} ne "FINISHED";
  die "of $reported tokens $sum are accounted for\n" if $sum != $reported;
  die "nothing was handed in on leaving\n" if !$ledger{partial_merged};
  print "$reported tokens, $ledger{merged} merged, ",
    "$ledger{partial_merged} of them partial\n"' <"${work}/status.json"
