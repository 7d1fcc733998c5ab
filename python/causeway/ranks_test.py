# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands of several processes."""

import unittest

from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import KILL, ProcessTestCase


class RanksTest(ProcessTestCase):

    def start_ranks(self, name, rows=(None, None), **settings):
        return [
            self.start_island(name, ranks=len(rows), rank=rank,
                              group_file=self.path(f"group-{name}"),
                              rows=rows[rank], **settings)
            for rank in range(len(rows))
        ]

    def test_two_islands_of_two_ranks_find_the_optimum(self):
        coordinator = self.start_coordinator(self.create_run(LeastSquares()))
        ranks = (self.start_ranks("east", part=0) +
                 self.start_ranks("west", part=1))
        for rank in ranks:
            self.assert_ends_well(rank)
            self.assertLess(rank.wait_for("end")["merged_error"], 1e-3)
        self.assert_ends_well(coordinator)

    def test_ranks_may_have_unequal_and_empty_shards(self):
        coordinator = self.start_coordinator(self.create_run(LeastSquares()))
        ranks = (
            self.start_ranks("east", part=0, rows=([0, 7], [7, 10])) +
            self.start_ranks("west", part=1, rows=([0, 4], [4, 10], [10, 10])))
        for rank in ranks:
            self.assert_ends_well(rank)
            self.assertLess(rank.wait_for("end")["merged_error"], 1e-3)
        self.assert_ends_well(coordinator)

    def test_all_ranks_end_when_one_is_killed(self):
        self.start_coordinator(
            self.create_run(LeastSquares(), min_islands=1,
                            total_steps=100000))
        ranks = self.start_ranks("east", part=0, step_seconds=0.02)
        for rank in ranks:
            rank.wait_for("step", 10)
        ranks[1].signal(KILL)
        self.assertNotEqual(ranks[0].wait(), 0)

    def test_an_error_of_the_first_rank_is_raised_on_all(self):
        self.start_coordinator(
            self.create_run(LeastSquares(), min_islands=1))
        for rank in self.start_ranks("No Name", part=0):
            self.assertEqual(rank.wait(), 1, rank.output())
            self.assertIn("causeway.errors.InvalidArgument", rank.output())


if __name__ == "__main__":
    unittest.main()
