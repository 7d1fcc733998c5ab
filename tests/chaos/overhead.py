# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of watching an island without faults: `ranks.py --pairs N`."""

import argparse
import os
import pathlib
import statistics
import time

import islands
from islands import Log

# The measured steps of an island that computes all the time, and those before.
STEPS = 150
FIRST_STEPS = 30
# Two ranks of an island without a simulated time, with more parameters.
BUSY = """
name: "busy"
model { layers: 4 hidden_size: 160 intermediate_size: 416 heads: 5
        sequence_length: 64 }
training { total_steps: 1000000 batch_size: 8 micro_batch_size: 1
           learning_rate: 1e-3 inner_algorithm: DDP }
synchronization { inner_steps_per_round: 50 overlap_steps: 10 }
"""


def processor_seconds(pid):
    """Returns the processor time of a process and its children so far."""
    ticks = 0
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    for process in [pid, *map(int, children.split())]:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class BusyTrial(islands.Trial):
    """A coordinator, and an island of two ranks that compute all the time."""

    run = BUSY

    def __init__(self, options, directory, memory, watched):
        self.watched = watched
        super().__init__(options, directory, memory)

    def start_island(self, name, *arguments, **options):
        # Only the other one trains.
        if name != "pair":
            super().start_island(name, *arguments, **options)

    def start_four(self):
        self.log = Log(self.directory / "rank0.log")
        if self.watched:
            self.start_island(
                "busy", "--supervise", 2, "--on_rank_fault", "act",
                "--checkpoint_dir", self.directory / "checkpoint",
                "--recent_checkpoint_dir", self.memory / "checkpoint",
                "--threads", 2, process="rank0")
            return
        for rank in range(2):
            self.start_island(
                "busy", "--island_size", 2, "--island_rank", rank,
                "--island_leader", "127.0.0.2:" + self.port,
                "--checkpoint_dir", self.directory / f"checkpoint{rank}",
                "--threads", 1,
                process=f"rank{rank}")

    def measure(self):
        """Returns the seconds and the processor time of a step."""

        def spent():
            return sum(processor_seconds(process.pid)
                       for name, process in self.processes.items()
                       if name.startswith("rank"))

        self.await_steps(FIRST_STEPS)
        begin = time.monotonic()
        first, processor = max(self.log.steps()), spent()
        self.await_steps(FIRST_STEPS + STEPS)
        steps = max(self.log.steps()) - first
        return {"seconds": (time.monotonic() - begin) / steps,
                "processor": (spent() - processor) / steps}


def overhead(options):
    """Returns what watching costs, by pairs of runs."""
    options = argparse.Namespace(**{**vars(options), "step_seconds": 0})
    runs = {True: [], False: []}
    for number in range(options.pairs):
        for watched in (True, False) if number % 2 else (False, True):
            with islands.running(BusyTrial, options, watched) as trial:
                runs[watched].append(trial.measure())
    report = {}
    for what in ("seconds", "processor"):
        shares = [one[what] / other[what] - 1
                  for one, other in zip(runs[True], runs[False])]
        report[what] = {"median": statistics.median(shares),
                        "least": min(shares), "most": max(shares)}
    return report
