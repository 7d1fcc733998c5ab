# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that `python3 -m causeway.run` starts, of which one computes wrong
numbers."""

import os
import unittest

from causeway.run import GAVE_UP
from causeway.testing.launches import LaunchTestCase
from causeway.testing.processes import KILL


class AuditTest(LaunchTestCase):

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
        self.assertIn("rank 1 computes wrong numbers; the island continues "
                      "without it, with 2 of 3 ranks, for as long as "
                      "causeway.run lives", launch.output())
        self.assert_reported("rank_corrupt .*east.*rank 1 computes wrong")
        # The faulty rank stays out if the ranks restart for another reason.
        os.kill(process, KILL)
        self.await_training(launch, 7)
        self.await_that(lambda: self.last_step(launch) > 50, launch)

    def test_ends_if_nobody_knows_which_rank_computes_wrong_numbers(self):
        self.begin()
        launch = self.launch_audited("--nproc_per_node=2",
                                     "--min-island-size=1",
                                     devices="a,b", wrong="b")
        self.assertEqual(launch.wait(), GAVE_UP, launch.output())
        self.assertIn("the island is not restarted", launch.output())
        # The ranks' results are not saved.
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
        self.assertIn("computes wrong numbers; the island is not restarted",
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


if __name__ == "__main__":
    unittest.main()
