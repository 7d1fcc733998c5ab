# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that `python3 -m causeway.run` starts."""

import json
import os
import signal
import sys
import time
import unittest

from causeway.run import GAVE_UP, Restarts
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import KILL, TERMINATE, ProcessTestCase

_PATIENCE = 150


def _runs(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class RunTest(ProcessTestCase):

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
            sys.executable, "-m", "causeway.run", "--hang-silence=2",
            "--hang-floor=2", *arguments, "-m",
            "causeway.testing.island_program",
            json.dumps(dict(settings, ranks=2, step_seconds=0.02))
        ])

    def await_that(self, condition, launch):
        end = time.monotonic() + _PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, launch.output())
            self.assertIsNone(launch.process.poll(), launch.output())
            time.sleep(0.05)

    def await_training(self, launch, joined, ranks=2):
        """Waits until as many ranks have joined altogether, the last of them as
        one of `ranks`, and train. Returns the event of the last rank 1, or else
        of the last one."""

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

    def test_help_says_how_to_start_it(self):
        launch = self.start("help", [sys.executable, "-m", "causeway.run",
                                     "--help"])
        self.assertEqual(launch.wait(), 0, launch.output())
        self.assertTrue(launch.output().startswith(
            "usage: python3 -m causeway.run ["), launch.output())

    def test_ranks_are_started_again_if_one_is_stopped(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2", "--on-rank-fault=act")
        os.kill(self.await_training(launch, 2)["process"], signal.SIGSTOP)
        self.await_that(
            lambda: "rank 1 is stuck: its process has not run for 2" in launch.
            output(), launch)
        last = self.await_training(launch, 4)["process"]
        self.assert_reported("rank_stuck .*east.*rank 1 is stuck")
        launch.signal(KILL)
        end = time.monotonic() + _PATIENCE
        while _runs(last):
            self.assertLess(time.monotonic(), end, "a rank was left behind")
            time.sleep(0.05)

    def test_ranks_that_hang_again_and_again_are_given_up(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2", "--on-rank-fault=act",
                             "--hang-ceiling=4", "--max_restarts=1",
                             fault="hang", fault_step=8)
        self.assertEqual(launch.wait(), GAVE_UP, launch.output())
        self.assertIn("it may wait for another rank", launch.output())

    def test_a_rank_that_is_stopped_before_it_attaches_is_found(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2", "--on-rank-fault=act",
                             fault="hang", fault_step=0)

        def hanging():
            return [event["process"] for event in launch.events()
                    if event["event"] == "fault"]

        self.await_that(lambda: len(hanging()) == 2, launch)
        os.kill(hanging()[-1], signal.SIGSTOP)
        self.await_that(
            lambda: "is stuck: its process has not run for 2" in launch.
            output(), launch)
        self.await_that(lambda: len(hanging()) == 4, launch)

    def test_restarts_with_progress_do_not_count(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2", "--max_restarts=1")
        for joined in (2, 4):
            os.kill(self.await_training(launch, joined)["process"], KILL)
        self.await_training(launch, 6)
        self.assert_reported("rank_dead .*east.*rank 1 ended first, with "
                             "signal 9")

    def test_sigterm_lets_the_island_leave(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2")
        self.await_training(launch, 2)
        launch.signal(TERMINATE)
        self.assertEqual(launch.wait(), 128 + TERMINATE, launch.output())
        self.assertEqual([event["event"] for event in launch.events()][-2:],
                         ["end", "end"])
        self.assertNotIn("Traceback", launch.output())

    def test_goes_on_without_a_rank_whose_device_is_gone(self):
        self.begin()
        broken = self.path("broken")
        os.environ["CUDA_VISIBLE_DEVICES"] = "a,b,c"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        launch = self.launch("--nproc_per_node=3", "--max_restarts=1",
                             "--min-island-size=2", broken=broken)
        process = self.await_training(launch, 3, ranks=3)["process"]
        with open(broken, "w", encoding="utf-8") as file:
            file.write("b")
        before = self.last_step(launch)
        os.kill(process, KILL)
        self.await_training(launch, 5)
        left_out = ("rank 1 ended first, with exit code 1, 2 times without "
                    "progress; the island goes on without it, with 2 of 3 "
                    "ranks")
        self.assertIn(left_out, launch.output())
        self.assert_reported(f"rank_dead .*east.*{left_out}")
        steps = [event["step"] for event in launch.events()
                 if event["event"] == "attached"]
        self.assertGreater(steps[-1], before - 20)

    def test_goes_on_without_a_host_and_with_it_again(self):
        self.begin()
        arguments = [
            "--nnodes=1:2", "--nproc_per_node=1", "--rdzv_backend=c10d",
            f"--rdzv_endpoint={self.path('hosts')}", "--local_addr=127.0.0.1",
            "--rdzv_conf=store_type=file,last_call_timeout=1,"
            "keep_alive_interval=1"
        ]
        stays, goes = (self.launch(*arguments) for _ in range(2))
        self.await_training(stays, 1)
        goes.signal(KILL)
        self.await_training(stays, 1, ranks=1)
        self.launch(*arguments)
        self.await_training(stays, 1)


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


class Run:
    """What Restarts knows of a Watch."""
    last_step = guessed = killed = 0

    def __init__(self):
        self.reports = []

    def report_failure(self, rank, text):
        self.reports.append((rank, text))


class RestartsTest(unittest.TestCase):

    def first(self, *codes, **fields):
        return Restarts(Run(), 3, 1, lambda _: None).first_to_fail(
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

        self.assertIsNone(Restarts(Run(), 3, 1, fail).first_to_fail(agent))

    def test_a_rank_of_another_host_may_have_been_the_first(self):
        self.assertIsNone(self.first(None, 1, hosts=2))
        self.assertEqual(self.first(None, -KILL, hosts=2), 1)

    def test_a_rank_that_was_killed_by_guess_is_not_the_first(self):
        watch = Run()
        watch.guessed = 1
        agent = Agent(None, -KILL)
        self.assertIsNone(Restarts(watch, 3, 1).first_to_fail(agent))

    def fail(self, restarts, agent, *firsts):
        """Returns the number of ranks after failures in which these were the
        first to fail, and how many restarts are left."""
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
            left = self.fail(Restarts(Run(), 3, least), agent, *firsts)
            self.assertEqual(left, (ranks, 3 if ranks == 2 else
                                    3 - len(firsts)), (firsts, least))

    def test_who_failed_first_is_reported_once(self):
        watch, agent = Run(), Agent(1, -KILL)
        restarts = Restarts(watch, 3, 1)
        self.fail(restarts, agent, 1, None, 0)
        self.assertEqual(watch.reports,
                         [(7, "rank 7 ended first, with signal 9"),
                          (7, "rank 7 ended first, with exit code 1")])
        # It was stuck, which has been reported.
        watch.killed = 1
        self.fail(restarts, agent, 1)
        self.assertEqual(len(watch.reports), 2)

    def test_progress_gives_new_restarts_with_numbers_of_their_own(self):
        watch, agent = Run(), Agent(None, None)
        restarts = Restarts(watch, 3, 1)
        numbers = []
        for watch.last_step in (0, 0, 5, 5, 5, 6, 6, 4, 6):
            _, left = self.fail(restarts, agent, None)
            numbers.append(agent.max_restarts - left)
        self.assertEqual(numbers, list(range(1, 10)))
        self.assertEqual(left, 0)


if __name__ == "__main__":
    unittest.main()
