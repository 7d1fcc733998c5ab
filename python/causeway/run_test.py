# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of one host that `python3 -m causeway.run` starts."""

import os
import signal
import sys
import time
import unittest

from causeway.run import GAVE_UP
from causeway.testing.launches import PATIENCE, LaunchTestCase
from causeway.testing.processes import KILL, TERMINATE, free_port

# With these limits, a rank that merely stalls may be killed.
_IMPATIENT = ("--hang-silence=2", "--hang-floor=2")


def _runs(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class RunTest(LaunchTestCase):

    def test_help_says_how_to_start_it(self):
        launch = self.start("help", [sys.executable, "-m", "causeway.run",
                                     "--help"])
        self.assertEqual(launch.wait(), 0, launch.output())
        self.assertTrue(launch.output().startswith(
            "usage: python3 -m causeway.run ["), launch.output())

    def test_ranks_are_started_again_if_one_is_stopped(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2", "--on-rank-fault=act",
                             *_IMPATIENT)
        os.kill(self.await_training(launch, 2)["process"], signal.SIGSTOP)
        self.await_that(
            lambda: "rank 1 is stuck: its process has not run for 2" in launch.
            output(), launch)
        last = self.await_training(launch, 4)["process"]
        self.assert_reported("rank_stuck .*east.*rank 1 is stuck")
        launch.signal(KILL)
        end = time.monotonic() + PATIENCE
        while _runs(last):
            self.assertLess(time.monotonic(), end, "a rank was left behind")
            time.sleep(0.05)

    def test_ranks_that_hang_again_and_again_are_given_up(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2", "--on-rank-fault=act",
                             *_IMPATIENT, "--hang-ceiling=4",
                             "--max_restarts=1", fault="hang", fault_step=8)
        self.assertEqual(launch.wait(), GAVE_UP, launch.output())
        self.assertIn("it may be waiting for another rank", launch.output())

    def test_a_rank_that_is_stopped_before_it_attaches_is_found(self):
        self.begin()
        launch = self.launch("--nproc_per_node=2", "--on-rank-fault=act",
                             *_IMPATIENT, fault="hang", fault_step=0)

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
        launch = self.launch("--nproc_per_node=2", "--max_restarts=1",
                             f"--master_port={free_port()}")
        for joined in (2, 4):
            os.kill(self.await_training(launch, joined)["process"], KILL)
        self.await_training(launch, 6)
        self.assertIn("not at --master-port", launch.output())
        self.assert_reported("rank_dead .*east.*rank 1 ended first, with "
                             "signal 9")

    def test_sigterm_lets_the_island_leave(self):
        self.begin()
        # The ranks leave before their DataLoaders' processes end.
        launch = self.launch("--nproc_per_node=2", workers=2)
        self.await_training(launch, 2)
        launch.signal(TERMINATE)
        self.assertEqual(launch.wait(), 128 + TERMINATE, launch.output())
        self.assertEqual([event["event"] for event in launch.events()][-2:],
                         ["end", "end"])
        self.assertNotIn("Traceback", launch.output())
        # PyTorch's own launcher says so before it signals groups.
        self.assertNotIn("closing signal", launch.output())

    def test_goes_on_without_a_rank_whose_device_is_gone(self):
        self.begin()
        broken = self.path("broken")
        os.environ["CUDA_VISIBLE_DEVICES"] = "a,b,c"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        launch = self.launch("--nproc_per_node=3", "--max_restarts=1",
                             "--min-island-size=2", "--grow-after=2",
                             broken=broken)
        process = self.await_training(launch, 3, ranks=3)["process"]
        with open(broken, "w", encoding="utf-8") as file:
            file.write("b")
        before = self.last_step(launch)
        os.kill(process, KILL)
        self.await_training(launch, 5)
        left_out = ("rank 1 ended first, with exit code 1, 2 times without "
                    "progress; the island continues without it, with 2 of "
                    "3 ranks")
        self.assertIn(left_out, launch.output())
        self.assert_reported(f"rank_dead .*east.*{left_out}")
        steps = [event["step"] for event in launch.events()
                 if event["event"] == "attached"]
        self.assertGreater(steps[-1], before - 20)
        # It is tried again, in vain, and then twice as late.
        self.await_that(
            lambda: "rank 2 ended first, with exit code 1, after its return; "
            "the island continues without it, with 2 of 3 ranks, for 4 s at "
            "least" in launch.output(), launch)
        os.remove(broken)
        before = self.last_step(launch)
        self.await_training(launch, 10, ranks=3)
        self.assert_reported("rank_back .*east.*the rank that was left out is "
                             "back; the island trains with 3 ranks")
        # Each start resumes where the ranks have left the run.
        steps = [event["step"] for event in launch.events()
                 if event["event"] == "attached"]
        self.assertGreaterEqual(steps[-1], before)
        self.assertEqual(len(set(steps[-3:])), 1)


if __name__ == "__main__":
    unittest.main()
