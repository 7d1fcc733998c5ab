# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of several hosts that `python3 -m causeway.run` starts."""

import os
import unittest

from causeway.testing.launches import LaunchTestCase
from causeway.testing.processes import KILL, free_port


class HostsTest(LaunchTestCase):

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
        endpoints = ",".join(f"127.0.0.{number}:{free_port()}"
                             for number in (1, 2))

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
        # It resumes from the island's checkpoint.
        self.assertGreater(self.last_step(follows), before)
        returned = launch(1)
        self.await_training(returned, 1)
        self.assertIn("following the host that leads, 127.0.0.2",
                      returned.output())
        self.await_training(follows, 3)

    def test_several_hosts_need_a_store_that_forgets_ranks(self):
        for argument, message in (
            ("--rdzv_endpoint=one:1,other:1",
             "several hosts in --rdzv-endpoint need --rdzv-backend=c10d"),
            ("--master_addr=one", "--rdzv-backend=c10d and "
             "--rdzv-endpoint=HOST:PORT in place of --master-addr")):
            launch = self.launch("--nnodes=2", argument)
            self.assertEqual(launch.wait(), 2, launch.output())
            self.assertIn(message, launch.output())

    def lose_and_regain(self, losing, *ranks):
        """Starts two hosts with these numbers of ranks. One of them loses the
        second of its two ranks for some time."""
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


if __name__ == "__main__":
    unittest.main()
