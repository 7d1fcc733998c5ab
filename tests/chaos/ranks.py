# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Faults inside an island that is supervised.

  ranks.py --programs DIR [--count N] [--kinds LIST] [--json FILE] ...

A coordinator and two islands run as processes: `pair` is one process, and
`four` has four ranks below `causeway-worker --supervise`. First they train
without faults. Then faults happen at random moments, COUNT of each kind:

  kill, stop        a rank of `four` gets SIGKILL or SIGSTOP
  kill_two          two of its ranks get SIGKILL at once
  kill_again        a rank gets SIGKILL, and again before it has made a step
  flap              a rank gets SIGKILL, and again each of the three times that
                    it is back
  flap_to_the_end   it gets SIGKILL once more, so that the supervisor gives up
  stop_host         all ranks get SIGSTOP
  kill_coordinator  a rank and the coordinator get SIGKILL at once
  kill_coordinator_in_plan
                    a rank gets SIGKILL or SIGSTOP, and the coordinator SIGKILL
                    when the supervisor knows which one
  kill_supervisor   the supervisor gets SIGKILL
  stop_supervisor   the supervisor gets SIGSTOP for 3 to 10 s
  slow              a rank runs a fifth of the time until it is blamed; not
                    rank 0, which alone waits for the simulated time of a step

Other kinds need an island of another shape (rank_trials.py), which trains with
and without faults after that:

  lose_spare        the host of rank 3 is killed, and the host of its spare as
                    that takes over
  corrupt           a rank computes wrong numbers; not rank 0
  corrupt_leader    rank 0 does, and the island ends
  corrupt_one_of_two
                    one of two ranks does, and the island ends

Processes that no supervisor watches are started again after half a second, as
by a service manager. An island that has ended is started again by hand.

The report has, for each kind of fault:

  count           faults
  found           how many the supervisor, or a slow rank's island, has noticed
  found_seconds   from the fault until then: median and longest
  blamed_rightly, blamed_wrongly
                  faults for which the coordinator's events have named only the
                  right ranks or host, and faults for which they named others
  repaired        how many times the island has trained again without a human,
                  or was found to be well after a slow rank had its time again
  seconds         from the fault until a step is done, or the slow rank's time
                  until the coordinator knows; for a supervisor that was
                  stopped, the longest step: median and longest
  steps_lost      steps that the island had made since the checkpoint that it
                  continued from: median and most
  ended           how many times the island has ended with the exit code that
                  forbids a restart, and the run has continued
  ended_seconds   from the fault until the run has merged a round since then:
                  median and longest
  left_behind     processes of ranks that outlived their supervisor

and, for all,

  goodput   tokens merged per second, relative to the runs without faults
  overhead  with --pairs N: what a supervisor, its stamps and checkpoints in
            memory cost an island of two ranks that compute all the time and
            have no faults. N pairs of runs, with and without these, in turns;
            the share by which steps take longer (`seconds`) and more processor
            time (`processor`): median, least and most

Exit codes: 0 every fault was found and repaired, or ended the island where it
must, and none was blamed on another rank; 1 otherwise.
"""

import random
import signal
import sys
import time

import rank_faults
from islands import (Trial, in_time, make_parser, measured, running, spread,
                     write_report)
from overhead import overhead
from rank_trials import AuditedPairTrial, AuditTrial, SpareTrial

# The faults of each trial, by kind.
TRIALS = (
    (Trial, {
        "kill": rank_faults.hit(signal.SIGKILL),
        "stop": rank_faults.hit(signal.SIGSTOP),
        "kill_two": rank_faults.hit(signal.SIGKILL, 2),
        "kill_again": rank_faults.flap(2),
        "flap": rank_faults.flap(rank_faults.STARTS),
        "flap_to_the_end": rank_faults.flap_to_the_end,
        "stop_host": rank_faults.stop_host,
        "kill_coordinator": rank_faults.kill_coordinator,
        "kill_coordinator_in_plan": rank_faults.kill_coordinator_in_plan,
        "kill_supervisor": rank_faults.kill_supervisor,
        "stop_supervisor": rank_faults.stop_supervisor,
        "slow": rank_faults.slow,
    }),
    (SpareTrial, {"lose_spare": rank_faults.lose_spare}),
    (AuditTrial, {
        "corrupt": rank_faults.corrupt,
        "corrupt_leader": rank_faults.corrupt_leader,
    }),
    (AuditedPairTrial, {"corrupt_one_of_two": rank_faults.corrupt_one_of_two}),
)
KINDS = [kind for _, faults in TRIALS for kind in faults]
# No process looks for the first two, and no rank can be blamed for the last.
UNSEEN = ("kill_supervisor", "stop_supervisor")
UNBLAMED = (*UNSEEN, "corrupt_one_of_two")
ENDING = ("flap_to_the_end", "corrupt_leader", "corrupt_one_of_two")


def summary(kind, results):
    """Returns the report on the faults of one kind."""
    report = {"count": len(results)}
    if kind not in UNSEEN:
        report.update({
            "found": sum("found_seconds" in r for r in results),
            **spread(results, "found_seconds", "found_seconds_longest"),
        })
    wrong = sum(not set(r.get("blamed", ())) <= set(r["ranks"])
                for r in results if "ranks" in r)
    if kind not in UNBLAMED:
        report["blamed_rightly"] = sum(
            bool(r.get("blamed")) for r in results) - wrong
    report["blamed_wrongly"] = wrong
    if kind in ENDING:
        return {
            **report,
            "ended": sum("ended_seconds" in r for r in results),
            **spread(results, "ended_seconds", "ended_seconds_longest"),
        }
    return {
        **report,
        "repaired": sum("seconds" in r for r in results),
        **spread(results, "seconds", "seconds_longest"),
        **spread(results, "steps_lost", "steps_lost_most"),
        "left_behind": sum(r.get("left_behind", 0) for r in results),
    }


def is_good(report, count):
    """Returns whether the report on one kind is as it should be."""
    return (all(report.get(key, count) == count for key in
                ("found", "blamed_rightly", "repaired", "ended")) and
            report["blamed_wrongly"] == report.get("left_behind", 0) == 0)


class Storm:
    """Faults of one trial, and the same trial without them."""

    def __init__(self, options, chance):
        self.options = options
        self.chance = chance
        self.results = []
        self.calm_tokens = 0
        self.stormy_tokens = 0

    def play(self, make_trial, faults):
        """Returns whether no fault timed out."""
        self.failed = False
        with running(make_trial, self.options) as trial:
            trial.await_steps(10)
            calm, calm_seconds = measured(
                trial, lambda: time.sleep(self.options.calm_seconds))
            stormy, seconds = measured(
                trial, lambda: self.strike(trial, faults))
        self.calm_tokens += calm / calm_seconds * seconds
        self.stormy_tokens += stormy
        return not self.failed

    def strike(self, trial, faults):
        """Makes the faults, one after the other."""
        kinds = [kind for kind in faults for _ in range(self.options.count)]
        self.chance.shuffle(kinds)
        begin = time.monotonic()
        for number, kind in enumerate([*kinds, None]):
            due = begin + number * self.options.fault_seconds
            time.sleep(max(0, due - time.monotonic()))
            if kind is None:
                return
            result = {"kind": kind}
            self.results.append(result)
            if not in_time(faults[kind], trial, self.chance, result):
                self.failed = True
                return


def run(options):
    """Returns the report, and whether all is as it should be."""
    kinds = options.kinds.split(",")
    storm = Storm(options, random.Random(options.seed))
    for trial, faults in TRIALS:
        chosen = {kind: fault for kind, fault in faults.items()
                  if kind in kinds}
        if chosen and not storm.play(trial, chosen):
            break
    calm = storm.calm_tokens
    report = {"goodput": storm.stormy_tokens / calm if calm else None,
              "fault_seconds": options.fault_seconds,
              "seed": options.seed}
    if options.pairs > 0:
        report["overhead"] = overhead(options)
    for kind in KINDS:
        if kind in kinds:
            report[kind] = summary(
                kind, [r for r in storm.results if r["kind"] == kind])
    good = all(is_good(report[kind], options.count)
               for kind in KINDS if kind in kinds)
    return report, good


def main():
    parser = make_parser(__doc__, 20, KINDS)
    parser.add_argument("--fault_seconds", type=float, default=15,
                        help="from one fault to the next (%(default)s)")
    parser.add_argument("--calm_seconds", type=float, default=60,
                        help="of the run without faults (%(default)s)")
    parser.add_argument("--pairs", type=int, default=0,
                        help="of runs that measure the overhead (%(default)s)")
    options = parser.parse_args()
    report, good = run(options)
    write_report(report, options.json)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
