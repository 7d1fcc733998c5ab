# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what causeway.run decides when ranks have failed."""

import time
import types
import unittest

from causeway.left_out import Absent
from causeway.restarts import Restarts
from causeway.testing.processes import KILL


class Process:
    """A rank with an exit code, or None while it runs."""

    def __init__(self, code):
        self.pid, self.proc, self.returncode = 1, self, code

    def poll(self):
        return self.returncode


class Agent:
    """An agent of torchrun whose ranks have these exit codes."""

    def __init__(self, *codes, hosts=1, restarts=3):
        self._pcontext = self
        self.subprocess_handlers = dict(enumerate(map(Process, codes)))
        self._worker_group = self.spec = self
        self.group_world_size = hosts
        self.world_size = hosts * len(codes)
        self.local_world_size = len(codes)
        self.workers = [self] * len(codes)
        self.global_rank = 7
        self.max_restarts = self._remaining_restarts = restarts
        self.starts = 0

    def _restart_workers(self, _):
        self.starts += 1
        self.world_size = self.local_world_size
        self.workers = [self] * self.world_size


class Run:
    """A Watch, as far as Restarts knows it."""
    last_step = guessed = killed = 0

    def __init__(self, acts=True, corrupt=None):
        self.reports = []
        self.acts = acts
        self.corrupt = corrupt

    def take_corrupt(self):
        return self.corrupt

    def report_failure(self, rank, text):
        self.reports.append((rank, text))

    report_return = report_failure


class Probe(Process):
    """A probe that has ended well."""

    def __init__(self, _):
        super().__init__(0)

    def kill(self):
        pass

    def communicate(self, timeout=None):
        return "", ""


class RestartsTest(unittest.TestCase):

    clock = 0

    def restarts(self, watch, most, least, pause=time.sleep):
        absent = Absent(10, lambda text: None, Probe, lambda: self.clock)
        return Restarts(watch, most, least, absent, pause)

    def first(self, *codes, **fields):
        return self.restarts(Run(), 3, 1, lambda _: None).first_to_fail(
            Agent(*codes, **fields))

    def test_a_rank_is_the_first_to_fail_if_it_is_the_only_one(self):
        self.assertEqual(self.first(None, 1, None), 1)
        self.assertIsNone(self.first(None, 1, 1))
        self.assertIsNone(self.first(None, None, 0))
        # Others fail because one was killed.
        self.assertEqual(self.first(1, -KILL, 1), 1)
        self.assertIsNone(self.first(-KILL, -KILL, None))

    def test_a_rank_is_not_the_first_if_others_fail_with_it(self):
        agent = Agent(1, None, None)

        def fail(_):
            agent.subprocess_handlers[2].returncode = 1

        self.assertIsNone(self.restarts(Run(), 3, 1, fail).first_to_fail(agent))

    def test_a_rank_of_another_host_may_have_been_the_first(self):
        self.assertIsNone(self.first(None, 1, hosts=2))
        self.assertEqual(self.first(None, -KILL, hosts=2), 1)

    def test_a_rank_that_was_killed_by_guess_is_not_the_first(self):
        watch = Run()
        watch.guessed = 1
        agent = Agent(None, -KILL)
        self.assertIsNone(self.restarts(watch, 3, 1).first_to_fail(agent))

    def fail(self, restarts, agent, *firsts):
        """Fails with these ranks first. Returns the number of ranks after that,
        and how many restarts are left."""
        for first in firsts:
            restarts.after_failure(agent, first)
            agent._remaining_restarts -= 1
        return agent.local_world_size, agent._remaining_restarts

    def test_the_last_failure_leaves_a_rank_out(self):
        for firsts, least, ranks in (
                ((1, 1, 1, 1), 2, 2), ((1, 1, 1), 2, 3), ((1, 1, 0, 1), 2, 3),
                ((1, 1, None, 1), 2, 3), ((None,) * 4, 2, 3),
                ((1, 1, 1, 1), 3, 3), ((1, 1, 1, 1), 0, 3)):
            agent = Agent(1, 1, 1)
            left = self.fail(self.restarts(Run(), 3, least), agent,
                             *firsts)
            self.assertEqual(left, (ranks, 3 if ranks == 2 else
                                    3 - len(firsts)), (firsts, least))

    def test_who_failed_first_is_reported_once(self):
        watch, agent = Run(), Agent(1, -KILL)
        restarts = self.restarts(watch, 3, 1)
        self.fail(restarts, agent, 1, None, 0)
        self.assertEqual(watch.reports,
                         [(7, "rank 7 ended first, with signal 9"),
                          (7, "rank 7 ended first, with exit code 1")])
        # It was stuck, which has been reported.
        watch.killed = 1
        self.fail(restarts, agent, 1)
        self.assertEqual(len(watch.reports), 2)

    def lose(self, watch):
        """Returns an agent that has lost one of three ranks."""
        agent, restarts = Agent(1, 1, 1), self.restarts(watch, 3, 2)
        self.fail(restarts, agent, 1, 1, 1, 1)
        agent._restart_workers(agent)
        self.assertEqual(len(agent.workers), 2)
        return agent, restarts

    def grow(self, restarts, agent):
        """Lets the rank come back. Returns how many starts that took."""
        before = agent.starts
        for _ in range(2):
            restarts.grow(agent)
        return agent.starts - before

    def train(self, watch, restarts, agent):
        """Makes steps. No rank comes back before."""
        self.assertEqual(self.grow(restarts, agent), 0)
        watch.last_step += 5

    def test_a_rank_comes_back_later_and_later_if_it_fails_again(self):
        watch = Run()
        agent, restarts = self.lose(watch)
        for wait, first in ((10, 2), (20, None), (40, 2), (80, 2), (160, 2),
                            (160, 2)):
            self.clock += wait - 1
            watch.last_step += 5
            self.assertEqual(self.grow(restarts, agent), 0)
            self.clock += 1
            self.assertEqual(self.grow(restarts, agent), 1)
            self.assertEqual(len(agent.workers), 3)
            self.assertIn("the rank that was left out is back; the island "
                          "trains with 3 ranks", watch.reports[-1][1])
            # It is left out at once, and the others have all restarts.
            self.assertEqual(self.fail(restarts, agent, first), (2, 3))
            self.assertIn("after its return; the island continues without it, "
                          "with 2 of 3 ranks", watch.reports[-1][1])
            agent._restart_workers(agent)

    def test_another_host_may_go_on_without_its_rank(self):
        for hosts, least, left in ((2, 2, 0), (1, 2, -1), (2, 0, -1)):
            agent = Agent(1, 1, 1, hosts=hosts)
            restarts = self.restarts(Run(), 3, least)
            _, allowed = self.fail(restarts, agent, *[None] * 4)
            self.assertEqual(allowed, left, (hosts, least))
            self.assertEqual(agent.max_restarts - allowed, 4)
            # It is given up if that does not help.
            self.assertEqual(self.fail(restarts, agent, None)[1], left - 1)

    def test_a_rank_that_is_back_is_like_others_after_a_step(self):
        watch = Run()
        agent, restarts = self.lose(watch)
        self.clock = 10
        self.train(watch, restarts, agent)
        self.assertEqual(self.grow(restarts, agent), 1)
        # Other ranks may complete the step in which it fails.
        for watch.last_step in (7, 8):
            restarts.grow(agent)
        self.assertEqual(self.fail(restarts, agent, 2, 2, 2, 2), (3, 0))
        self.assertEqual(self.fail(restarts, agent, 2), (2, 3))
        self.assertIn("4 times without progress", watch.reports[-1][1])

    def test_another_ranks_failure_does_not_count_for_the_returned_one(self):
        watch = Run()
        agent, restarts = self.lose(watch)
        self.clock = 10
        self.train(watch, restarts, agent)
        self.assertEqual(self.grow(restarts, agent), 1)
        self.assertEqual(self.fail(restarts, agent, 0)[0], 3)

    def test_decides_after_an_audit(self):
        # The ranks of this host have the number 7.
        for corrupt, ranks, settings, after in (
                ([7], 3, {}, (2, 3, False)), ([], 3, {}, (3, -1, True)),
                ([7], 3, {"least": 0}, (3, -1, True)),
                ([7], 3, {"least": 3}, (3, -1, True)),
                ([7], 3, {"acts": False}, (3, -1, True)),
                ([7], 3, {"most": 0}, (3, -1, True)),
                # It is the only one here, so this host ends.
                ([7], 1, {}, (1, -1, True)),
                # It is another host's.
                ([1], 3, {}, (3, 2, False))):
            agent = Agent(*[1] * ranks, hosts=1 if ranks > 1 else 3)
            agent.rdzv_handler = types.SimpleNamespace(shutdown=None)
            restarts = self.restarts(
                Run(settings.get("acts", True), corrupt),
                settings.get("most", 3), settings.get("least", 2))
            self.assertEqual(
                (*self.fail(restarts, agent, None), restarts.gave_up), after,
                (corrupt, ranks, settings))
            self.assertEqual(agent.rdzv_handler.shutdown is None, ranks > 1)

    def test_progress_gives_new_restarts_with_numbers_of_their_own(self):
        watch, agent = Run(), Agent(None, None)
        restarts = self.restarts(watch, 3, 1)
        numbers = []
        for watch.last_step in (0, 0, 5, 5, 5, 6, 6, 4, 6):
            _, left = self.fail(restarts, agent, None)
            numbers.append(agent.max_restarts - left)
        self.assertEqual(numbers, list(range(1, 10)))
        self.assertEqual(left, 0)


if __name__ == "__main__":
    unittest.main()
