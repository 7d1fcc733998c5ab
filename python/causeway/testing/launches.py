# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that `python3 -m causeway.run` starts, for tests."""

import json
import sys
import time

from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import ProcessTestCase

PATIENCE = 150


class LaunchTestCase(ProcessTestCase):

    def begin(self):
        """Starts the coordinator of a run of one island."""
        self.start_coordinator(self.create_run(
            LeastSquares(), total_steps=1000000, min_islands=1))

    def launch(self, *arguments, **settings):
        """Starts ranks of the island."""
        settings["join"] = {"coordinator": self.address, "island": "east",
                            "verbose": True, "checkpoint_steps": 5,
                            "checkpoint_dir": self.path("checkpoint")}
        return self.start("launch", [
            sys.executable, "-m", "causeway.run", *arguments, "-m",
            "causeway.testing.island_program",
            json.dumps(dict(settings, ranks=2, step_seconds=0.02))
        ])

    def await_that(self, condition, launch):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, launch.output())
            self.assertIsNone(launch.process.poll(), launch.output())
            time.sleep(0.05)

    def await_training(self, launch, joined, ranks=2):
        """Waits until `joined` ranks have joined altogether, the last of them
        as one of `ranks`, and train. Returns the event of the last rank 1, or
        else of the last one."""

        def trains():
            events = launch.events()
            joins = [event for event in events if event["event"] == "joined"]
            if len(joins) < joined or joins[-1]["ranks"] != ranks:
                return False
            steps = events[events.index(joins[-1]):]
            return [event["event"] for event in steps].count("step") > 4

        self.await_that(trains, launch)
        joins = [event for event in launch.events()
                 if event["event"] == "joined"]
        return ([event for event in joins if event["rank"] == 1] or joins)[-1]

    def assert_reported(self, event):
        self.assertRegex(
            self.tool("events", "--coordinator", self.address), event)

    def last_step(self, launch):
        return [event["step"] for event in launch.events()
                if event["event"] == "step"][-1]
