# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Kills processes of a run at random, and starts them again.

    python/run_test.sh tests/pytorch/kill_test.py [--kills N] [--seed N]
"""

import argparse
import json
import random
import sys
import unittest

from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import KILL, TERMINATE, ProcessTestCase

_KILLS, _SEED = 3, 1
# Steps of the run between two kills: a lease and some rounds.
_STEPS_PER_KILL = 150


class Island:
    """An island of some ranks, which is started again when one is killed."""

    def __init__(self, test, name, part, ranks):
        self._test = test
        self._name = name
        self._settings = dict(
            part=part, ranks=ranks, step_seconds=0.02,
            join={"checkpoint_dir": test.path(f"checkpoint-{name}"),
                  "checkpoint_steps": 5, "rank_timeout": 20})
        self._lives = 0
        self.start()

    def start(self):
        self._lives += 1
        group = self._test.path(f"group-{self._name}-{self._lives}")
        self.ranks = [
            self._test.start_island(self._name, rank=rank, group_file=group,
                                    **self._settings)
            for rank in range(self._settings["ranks"])
        ]

    def kill(self, rank):
        self.ranks[rank].signal(KILL)
        # The others end by themselves.
        for process in self.ranks:
            process.wait()

    @property
    def step(self):
        steps = [event["step"] for event in self.ranks[0].events()
                 if event["event"] == "step"]
        return steps[-1] if steps else 0


class KillTest(ProcessTestCase):

    def ledger(self):
        status = json.loads(
            self.tool("status", "--coordinator", self.address, "--json"))
        return {part: int(tokens)
                for part, tokens in status["run"]["ledger"].items()}

    def test_a_run_outlives_its_processes(self):
        chance = random.Random(_SEED)
        files = self.create_run(
            LeastSquares(), quorum=2,
            total_steps=_STEPS_PER_KILL * (_KILLS + 1))
        coordinator = self.start_coordinator(files, stays=True)
        islands = [Island(self, "east", 0, 1), Island(self, "west", 1, 2)]
        for kill in range(_KILLS):
            victim = chance.choice(["coordinator", (0, 0), (1, 0), (1, 1)])
            step = max(island.step for island in islands)
            step += chance.randint(20, _STEPS_PER_KILL - 20)
            chance.choice(islands).ranks[0].wait_for("step", step)
            print(f"kill {kill + 1}, about step {step}: {victim}",
                  file=sys.stderr, flush=True)
            if victim == "coordinator":
                coordinator.signal(KILL)
                coordinator.wait()
                coordinator = self.start_coordinator(files, stays=True)
            else:
                islands[victim[0]].kill(victim[1])
                islands[victim[0]].start()
        ends = []
        for island in islands:
            for process in island.ranks:
                self.assert_ends_well(process)
                ends += [event for event in process.events()
                         if event["event"] == "end"]
        # An island that is started again late may find the run finished.
        self.assertTrue(ends)
        for end in ends:
            self.assertLess(end["merged_error"], 1e-3)
        ledger = self.ledger()
        parts = sum(tokens for part, tokens in ledger.items()
                    if part != "reported")
        self.assertEqual(ledger["reported"], parts, ledger)
        self.assertGreater(ledger["merged"], 0.7 * ledger["reported"])
        print(ledger, file=sys.stderr)
        coordinator.signal(TERMINATE)
        self.assert_ends_well(coordinator)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=_KILLS)
    parser.add_argument("--seed", type=int, default=_SEED)
    options, rest = parser.parse_known_args()
    _KILLS, _SEED = options.kills, options.seed
    unittest.main(argv=sys.argv[:1] + rest)
