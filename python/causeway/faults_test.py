# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands of PyTorch whose processes get signals, or lose their coordinator."""

import json
import unittest

from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import (INTERRUPT, KILL, TERMINATE,
                                        ProcessTestCase)

_SLOW = 0.02


class FaultsTest(ProcessTestCase):

    def begin(self, **run):
        self.files = self.create_run(LeastSquares(), **run)
        self.coordinator = self.start_coordinator(self.files)

    def tokens_merged(self):
        status = self.tool("status", "--coordinator", self.address, "--json")
        return int(json.loads(status)["run"].get("tokens_merged", 0))

    def hands_in(self, number, code):
        self.begin(min_islands=1, total_steps=100000)
        island = self.start_island("east", part=0, step_seconds=_SLOW)
        island.wait_for("step", 3)
        merged = self.tokens_merged()
        island.signal(number)
        self.assert_ends_well(island, code)
        self.assertGreater(self.tokens_merged(), merged)

    def test_sigterm_hands_in_and_leaves(self):
        self.hands_in(TERMINATE, 0)

    def test_ctrl_c_hands_in_and_leaves(self):
        # Python ends with the signal that it got.
        self.hands_in(INTERRUPT, -INTERRUPT)

    def test_ctrl_c_ends_a_wait_for_other_islands(self):
        self.begin(min_islands=2)
        island = self.start_island("east", part=0)
        # The island has joined, and waits for another one.
        while "east" not in self.tool("islands", "--coordinator",
                                      self.address):
            self.assertIsNone(island.process.poll(), island.output())
        island.signal(INTERRUPT)
        self.assert_ends_well(island, -INTERRUPT)

    def test_an_island_that_was_killed_comes_back(self):
        self.begin(total_steps=400, quorum=2)
        join = {"checkpoint_dir": self.path("checkpoints"),
                "checkpoint_steps": 5}
        first = self.start_island("east", part=0, step_seconds=_SLOW, join=join)
        west = self.start_island("west", part=1, step_seconds=_SLOW)
        first.wait_for("step", 50)
        first.signal(KILL)
        self.assertEqual(first.wait(), -KILL)
        second = self.start_island("east", part=0, step_seconds=_SLOW,
                                   join=join)
        # It resumes from its checkpoint at once.
        self.assertGreaterEqual(second.wait_for("attached")["step"], 40)
        for island in (second, west):
            self.assert_ends_well(island)
            self.assertLess(island.wait_for("end")["merged_error"], 1e-3)
        self.assert_ends_well(self.coordinator)

    def test_a_coordinator_that_was_killed_comes_back(self):
        self.begin(total_steps=300)
        islands = [
            self.start_island(name, part=part, step_seconds=_SLOW)
            for part, name in enumerate(("east", "west"))
        ]
        islands[0].wait_for("step", 50)
        self.coordinator.signal(KILL)
        self.assertEqual(self.coordinator.wait(), -KILL)
        self.coordinator = self.start_coordinator(self.files)
        for island in islands:
            self.assert_ends_well(island)
            self.assertLess(island.wait_for("end")["merged_error"], 1e-3)
        self.assert_ends_well(self.coordinator)


if __name__ == "__main__":
    unittest.main()
