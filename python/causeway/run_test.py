# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that `python3 -m causeway.run` starts."""

import json
import os
import signal
import sys
import time
import unittest

from causeway.run import GAVE_UP
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import KILL, ProcessTestCase

_PATIENCE = 150


def _runs(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class RunTest(ProcessTestCase):

    def launch(self, *arguments, **settings):
        """Starts the only island of a run, with two ranks."""
        self.start_coordinator(self.create_run(
            LeastSquares(), total_steps=1000000, min_islands=1))
        settings["join"] = {"coordinator": self.address, "island": "east",
                            "verbose": True, "checkpoint_steps": 5,
                            "checkpoint_dir": self.path("checkpoint")}
        return self.start("launch", [
            sys.executable, "-m", "causeway.run", "--nproc_per_node=2",
            "--hang-silence=2", "--hang-floor=2", *arguments, "-m",
            "causeway.testing.island_program",
            json.dumps(dict(settings, ranks=2, step_seconds=0.02))
        ])

    def await_that(self, condition, launch):
        end = time.monotonic() + _PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, launch.output())
            self.assertIsNone(launch.process.poll(), launch.output())
            time.sleep(0.05)

    def await_training(self, launch, starts):
        """Waits until ranks train that were started for the `starts`-th time.
        Returns the process of rank 1."""

        def trains():
            events = [event["event"] for event in launch.events()]
            if events.count("joined") < 2 * starts:
                return False
            last = len(events) - 1 - events[::-1].index("joined")
            return events[last:].count("step") > 4

        self.await_that(trains, launch)
        return [event["process"] for event in launch.events()
                if event["event"] == "joined" and event["rank"] == 1][-1]

    def test_ranks_are_started_again_if_one_is_stopped(self):
        launch = self.launch("--on-rank-fault=act")
        os.kill(self.await_training(launch, 1), signal.SIGSTOP)
        self.await_that(
            lambda: "rank 1 is stuck: its process has not run for 2" in launch.
            output(), launch)
        last = self.await_training(launch, 2)
        launch.signal(KILL)
        end = time.monotonic() + _PATIENCE
        while _runs(last):
            self.assertLess(time.monotonic(), end, "a rank was left behind")
            time.sleep(0.05)

    def test_ranks_that_hang_again_and_again_are_given_up(self):
        launch = self.launch("--on-rank-fault=act", "--hang-ceiling=4",
                             "--max_restarts=1", fault="hang", fault_step=8)
        self.assertEqual(launch.wait(), GAVE_UP, launch.output())
        self.assertIn("it may wait for another rank", launch.output())


if __name__ == "__main__":
    unittest.main()
