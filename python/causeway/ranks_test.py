# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands of several processes."""

import os
import queue
import re
import time
import unittest
import unittest.mock

from causeway.errors import Error
from causeway.ranks import WAITING, Ranks
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import KILL, TERMINATE, ProcessTestCase

# These steps go without DistributedDataParallel, whose all-reduce would wait.
_PARTS = ([0, 7], [7, 10])


class FirstTest(unittest.TestCase):

    def test_other_ranks_hear_that_rank_0_waits_or_fails(self):
        told = queue.Queue()
        leader, follower = Ranks(), Ranks()
        follower.rank = 1
        leader.from_first = told.put
        follower.from_first = lambda _: told.get_nowait()
        results = [WAITING, WAITING, 7]
        self.assertEqual(leader.first(lambda _: results.pop(0), str), 7)
        self.assertEqual(told.qsize(), 3)
        self.assertEqual(follower.first(lambda told: told + "!"), "7!")
        self.assertTrue(told.empty())

        def fill_the_disk(_):
            raise OSError("no space")

        with self.assertRaisesRegex(OSError, "no space"):
            leader.first(fill_the_disk)
        with self.assertRaisesRegex(Error, "no space"):
            follower.first(str)


class HostTest(unittest.TestCase):

    def test_ranks_with_a_name_gather_with_those_that_have_none(self):
        for name, hosts, own in ((None, ["a", "a"], "127.0.0.1"),
                                 (None, ["a", "b"], None),
                                 ("ib0", ["a", "a"], "ib0")):
            ranks = Ranks(host=name)
            ranks.size = 2
            ranks.gather = unittest.mock.Mock(return_value=hosts)
            self.assertEqual(ranks.host(), own)
            ranks.gather.assert_called_once()


class RanksTest(ProcessTestCase):

    def start_ranks(self, name, rows=(None, None), fault=None, **settings):
        """Starts the ranks of an island; the last one has the fault."""
        ranks = range(len(rows))
        return [
            self.start_island(name, ranks=len(rows), rank=rank,
                              group_file=self.path(f"group-{name}"),
                              rows=rows[rank],
                              **(fault or {} if rank == ranks[-1] else {}),
                              **settings) for rank in ranks
        ]

    def fails(self, what, step, rank_timeout=6):
        """Starts two islands, in one of which a rank fails. Returns the ranks
        of that one, and the other island."""
        self.start_coordinator(
            self.create_run(LeastSquares(), total_steps=100000))
        ranks = self.start_ranks("east", part=0, rows=_PARTS,
                                 fault={"fault": what, "fault_step": step},
                                 join={"rank_timeout": rank_timeout})
        west = self.start_island("west", part=1, step_seconds=0.01)
        ranks[1].wait_for("fault")
        return ranks, west

    def assert_raises_in_time(self, rank, message):
        begin = time.monotonic()
        self.assertEqual(rank.wait(), 1, rank.output())
        # The rank's time limit, and time for slow machines.
        self.assertLess(time.monotonic() - begin, 6 + 30)
        self.assertIn(f"causeway.errors.RankFailed: {message}", rank.output())

    def assert_has_left(self, reason):
        events = self.tool("events", "--coordinator", self.address)
        self.assertRegex(events, f"island_failed .*east.*{reason}")

    def test_a_rank_that_exits_before_it_attaches_is_named(self):
        ranks, _ = self.fails("exit", 0)
        self.assert_raises_in_time(
            ranks[0], "rank 1 is stuck: it has joined, but has not attached "
            "its tensors within 6s")
        self.assert_has_left("rank 1 is stuck")

    def test_a_rank_that_raises_before_it_attaches_is_heard_at_once(self):
        ranks, _ = self.fails("raise", 0, rank_timeout=1000)
        self.assert_raises_in_time(
            ranks[0], "rank 1 has given up: ValueError: no such file")
        self.assert_has_left("ValueError: no such file")

    def test_ranks_that_wait_hear_what_rank_0_raises_before_it_attaches(self):
        self.start_coordinator(self.create_run(LeastSquares()))
        ranks = [
            self.start_island("east", ranks=2, rank=rank,
                              group_file=self.path("group"), rows=_PARTS[rank],
                              fault="raise" if rank == 0 else "",
                              fault_file=self.path("go"),
                              join={"rank_timeout": 1000,
                                    "step_timeout": 3})
            for rank in range(2)
        ]
        ranks[1].wait_for("waits")
        with open(self.path("go"), "w", encoding="utf-8"):
            pass
        self.assert_raises_in_time(
            ranks[1], "rank 0 has given up: ValueError: no such file")

    def test_a_rank_that_hangs_in_a_step_is_named(self):
        ranks, west = self.fails("hang", 40)
        hangs = ("rank 1 has given up: its training loop hangs in step 40, "
                 "which rank 0 ended 6s ago")
        self.assert_raises_in_time(ranks[0], hangs)
        self.assert_has_left(hangs)
        # The other island does not wait.
        west.wait_for("step", 100)

    def test_a_rank_that_exits_in_a_step_is_named(self):
        ranks, west = self.fails("exit", 40)
        self.assert_raises_in_time(ranks[0], "rank 1 is dead: ")
        self.assertRegex(ranks[0].output(),
                         "the last order that all ranks received was (step|the "
                         r"(update|snapshot) of fragment \d at step) \d+\n")
        self.assert_has_left("rank 1 is dead")
        west.wait_for("step", 100)

    def test_a_rank_that_exits_while_the_island_waits_is_named(self):
        self.start_coordinator(self.create_run(LeastSquares()))
        ranks = self.start_ranks("east", part=0, rows=_PARTS,
                                 join={"rank_timeout": 6})
        while "waiting for islands" not in self.tool(
                "islands", "--coordinator", self.address):
            self.assertIsNone(ranks[0].process.poll(), ranks[0].output())
        ranks[1].signal(KILL)
        self.assert_raises_in_time(ranks[0], "rank 1 is dead: ")

    def test_the_reason_is_heard_though_a_collective_breaks_first(self):
        self.start_coordinator(
            self.create_run(LeastSquares(), min_islands=1,
                            total_steps=100000))
        ranks = self.start_ranks("east", part=0,
                                 fault={"fault": "raise", "fault_step": 40})
        for rank in ranks:
            self.assertEqual(rank.wait(), 1, rank.output())
        self.assert_has_left("rank 1 has given up: ValueError: no such file")

    def test_the_first_sigterm_ends_a_wait_for_a_rank(self):
        ranks, _ = self.fails("hang", 0, rank_timeout=1000)
        ranks[0].wait_for("joined")
        ranks[0].signal(TERMINATE)
        self.assert_ends_well(ranks[0])
        self.assertEqual(ranks[0].events()[-1], {"event": "left"})

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

    def audit(self, ranks):
        """Starts an island whose rank 1 computes wrong gradients from step 11
        on, and returns the error of all ranks and the events."""
        self.start_coordinator(
            self.create_run(LeastSquares(), min_islands=1,
                            total_steps=100000))
        saved = self.path("saved")
        east = [self.start_island("east", part=0, ranks=ranks, rank=rank,
                                  join={"checkpoint_dir": saved,
                                        "checkpoint_steps": 5},
                                  group_file=self.path("group"), audit=5,
                                  wrong_from=11 if rank == 1 else 0)
                for rank in range(ranks)]
        for rank in east:
            self.assertEqual(rank.wait(), 1, rank.output())
            last = [event for event in rank.events()
                    if event["event"] == "step"][-1]
            self.assertEqual(last["step"], 10)
        self.assertNotIn("island.safetensors", os.listdir(saved))
        errors = {error for rank in east for error in
                  re.findall("causeway.errors.DataLoss: .*", rank.output())}
        self.assertEqual(len(errors), 1, east[0].output())
        return errors.pop(), self.tool("events", "--coordinator", self.address)

    def test_an_audit_names_the_rank_that_computes_wrong_gradients(self):
        error, events = self.audit(3)
        self.assertIn("rank 1", error)
        self.assertRegex(events, "rank_corrupt .*east.*rank 1")

    def test_an_audit_of_two_ranks_says_that_they_differ(self):
        error, events = self.audit(2)
        self.assertIn("{0} {1}; which of them are wrong is not known", error)
        self.assertNotIn("rank_corrupt", events)

    def test_an_error_of_the_first_rank_is_raised_on_all(self):
        self.start_coordinator(
            self.create_run(LeastSquares(), min_islands=1))
        for rank in self.start_ranks("No Name", part=0):
            self.assertEqual(rank.wait(), 1, rank.output())
            self.assertIn("causeway.errors.InvalidArgument", rank.output())


if __name__ == "__main__":
    unittest.main()
