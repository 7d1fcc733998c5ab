# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that `python3 -m causeway.run` starts."""

import json
import os
import signal
import socket
import sys
import time
import types
import unittest

from causeway.left_out import Absent
from causeway.restarts import Restarts
from causeway.run import GAVE_UP
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
                             "--min-island-size=2", "--grow-after=2",
                             broken=broken)
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
        # It is tried again, in vain, and then twice as late.
        self.await_that(
            lambda: "rank 2 ended first, with exit code 1, after its return; "
            "the island goes on without it, with 2 of 3 ranks, for 4 s at "
            "least" in launch.output(), launch)
        os.remove(broken)
        before = self.last_step(launch)
        self.await_training(launch, 10, ranks=3)
        self.assert_reported("rank_back .*east.*the rank that was left out is "
                             "back; the island trains with 3 ranks")
        # Each start goes on where the ranks have left the run.
        steps = [event["step"] for event in launch.events()
                 if event["event"] == "attached"]
        self.assertGreaterEqual(steps[-1], before)
        self.assertEqual(len(set(steps[-3:])), 1)

    def launch_audited(self, *arguments, devices, wrong):
        """Starts a host of ranks of which the one with the device `wrong`
        computes wrong gradients from step 11 on."""
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES", None)
        return self.launch("--on-rank-fault=act", *arguments, audit=5,
                           wrong_from=11, wrong_device=wrong)

    def test_goes_on_without_a_rank_that_computes_wrong_numbers(self):
        self.begin()
        launch = self.launch_audited(
            "--nproc_per_node=3", "--min-island-size=2", "--grow-after=1",
            devices="a,b,c", wrong="b")
        process = self.await_training(launch, 5)["process"]
        self.assertIn("rank 1 computes wrong numbers; the island goes on "
                      "without it, with 2 of 3 ranks, for as long as "
                      "causeway.run lives", launch.output())
        self.assert_reported("rank_corrupt .*east.*rank 1 computes wrong")
        # It gets no place if the ranks start again for another reason.
        os.kill(process, KILL)
        self.await_training(launch, 7)
        self.await_that(lambda: self.last_step(launch) > 50, launch)

    def test_ends_if_nobody_knows_which_rank_computes_wrong_numbers(self):
        self.begin()
        launch = self.launch_audited("--nproc_per_node=2",
                                     "--min-island-size=1",
                                     devices="a,b", wrong="b")
        self.assertEqual(launch.wait(), GAVE_UP, launch.output())
        self.assertIn("the island is not started again", launch.output())
        # The island does not take up what they have computed.
        self.assertNotIn("island.safetensors",
                         os.listdir(self.path("checkpoint")))

    def test_ends_on_all_hosts_if_it_needs_a_rank_with_wrong_numbers(self):
        self.begin()
        arguments = [
            "--nnodes=2", "--rdzv_backend=c10d", "--rdzv_conf=store_type=file",
            f"--rdzv_endpoint={self.path('hosts')}", "--local_addr=127.0.0.1"
        ]
        hosts = [self.launch_audited(f"--nproc_per_node={len(devices)}",
                                     *arguments, devices=",".join(devices),
                                     wrong="b")
                 for devices in ("ab", "c")]
        for host in hosts:
            self.assertEqual(host.wait(), GAVE_UP, host.output())
        self.assertIn("computes wrong numbers; the island is not started again",
                      hosts[0].output())
        self.assertIn("another host has ended the island", hosts[1].output())

    def test_another_host_replaces_one_that_computes_wrong_numbers(self):
        self.begin()
        arguments = [
            "--nnodes=3", "--nproc_per_node=1", "--rdzv_backend=c10d",
            f"--rdzv_endpoint={self.path('hosts')}", "--local_addr=127.0.0.1",
            "--rdzv_conf=store_type=file,last_call_timeout=1,"
            "keep_alive_interval=1"
        ]
        hosts = [self.launch_audited(*arguments, devices=name, wrong="b")
                 for name in "abc"]
        self.assertEqual(hosts[1].wait(), GAVE_UP, hosts[1].output())
        hosts[1] = self.launch_audited(*arguments, devices="d", wrong="b")
        for host in hosts:
            self.await_that(lambda: any(
                event["event"] == "step" and event["step"] > 50
                for event in host.events()), host)

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

    def test_another_host_leads_if_the_one_that_does_is_lost(self):
        self.begin()
        free = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        endpoints = ",".join(
            f"127.0.0.{number}:{server.getsockname()[1]}"
            for number, server in enumerate(free, start=1))
        for server in free:
            server.close()

        def launch(number):
            return self.launch(
                "--nnodes=1:2", "--nproc_per_node=1", "--rdzv_backend=c10d",
                f"--rdzv_endpoint={endpoints}",
                f"--local_addr=127.0.0.{number}",
                "--rdzv_conf=last_call_timeout=2,keep_alive_interval=1")

        leads, follows = launch(1), launch(2)
        self.await_training(follows, 1)
        before = self.last_step(leads)
        leads.signal(KILL)
        self.await_training(follows, 2, ranks=1)
        self.assertIn("this host leads", follows.output())
        # It goes on from the island's checkpoint.
        self.assertGreater(self.last_step(follows), before)
        returned = launch(1)
        self.await_training(returned, 1)
        self.assertIn("following the host that leads, 127.0.0.2",
                      returned.output())
        self.await_training(follows, 3)

    def test_several_hosts_that_may_lead_need_a_store_of_their_own(self):
        launch = self.launch("--nnodes=2", "--rdzv_endpoint=one:1,other:1")
        self.assertEqual(launch.wait(), 2, launch.output())
        self.assertIn("several hosts in --rdzv-endpoint need "
                      "--rdzv-backend=c10d", launch.output())

    def lose_and_regain(self, losing, *ranks):
        """Starts two hosts with so many ranks, of which one loses the second of
        its two ranks for some time."""
        self.begin()
        broken = self.path("broken")
        os.environ["CUDA_VISIBLE_DEVICES"] = "a,b"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        arguments = [
            "--nnodes=2", "--rdzv_backend=c10d", "--max_restarts=1",
            f"--rdzv_endpoint={self.path('hosts')}", "--local_addr=127.0.0.1",
            "--rdzv_conf=store_type=file", "--min-island-size=2",
            "--grow-after=2"
        ]
        hosts = [self.launch(f"--nproc_per_node={ranks}", *arguments,
                             broken=broken, broken_kills=True)
                 for ranks in ranks]

        def await_ranks(ranks):
            for host in hosts:
                self.await_training(host, 1, ranks)

        await_ranks(3)
        with open(broken, "w", encoding="utf-8") as file:
            file.write("b")
        last = [event for event in hosts[losing].events()
                if event["event"] == "joined"][-1]
        os.kill(last["process"], KILL)
        await_ranks(2)
        os.remove(broken)
        await_ranks(3)
        # All ranks left the run in order.
        for host in hosts:
            self.assertIn("end", [event["event"] for event in host.events()],
                          host.output())
        for event in ("rank_dead .*ended first, with signal 9, 2 times",
                      "rank_back .*the island trains with 3 ranks"):
            self.assert_reported(event)

    def test_a_rank_of_the_host_of_rank_0_comes_back(self):
        self.lose_and_regain(0, 2, 1)

    def test_a_rank_of_another_host_comes_back(self):
        self.lose_and_regain(1, 1, 2)


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
    """What Restarts knows of a Watch."""
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
            self.assertIn("after its return; the island goes on without it, "
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
        # Others may begin a step that it fails in.
        for watch.last_step in (7, 8):
            restarts.grow(agent)
        self.assertEqual(self.fail(restarts, agent, 2, 2, 2, 2), (3, 0))
        self.assertEqual(self.fail(restarts, agent, 2), (2, 3))
        self.assertIn("4 times without progress", watch.reports[-1][1])

    def test_the_failure_of_another_rank_is_not_that_of_the_one_that_is_back(
            self):
        watch = Run()
        agent, restarts = self.lose(watch)
        self.clock = 10
        self.train(watch, restarts, agent)
        self.assertEqual(self.grow(restarts, agent), 1)
        self.assertEqual(self.fail(restarts, agent, 0)[0], 3)

    def test_who_decides_after_an_audit_and_what(self):
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
