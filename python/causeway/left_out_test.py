# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the ranks that an island trains without."""

import os
import subprocess
import sys
import unittest

from causeway.left_out import (MOST_WAITS, Absent, hide_device, show_device,
                               start_probe)


class DeviceTest(unittest.TestCase):

    def setUp(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = "a,b,c"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")

    def visible(self):
        return os.environ["CUDA_VISIBLE_DEVICES"]

    def test_a_device_is_hidden_and_shown_again(self):
        self.assertEqual(hide_device(1, 3), "b")
        self.assertEqual(self.visible(), "a,c")
        show_device("b")
        self.assertEqual(self.visible(), "a,c,b")

    def test_devices_that_ranks_share_stay(self):
        self.assertIsNone(hide_device(1, 2))
        show_device(None)
        self.assertEqual(self.visible(), "a,b,c")

    def test_the_only_device_is_hidden_and_shown_again(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = "a"
        show_device(hide_device(0, 1))
        self.assertEqual(self.visible(), "a")


class AbsentTest(unittest.TestCase):

    def setUp(self):
        self.time = 0
        self.said = []
        self.probed = []
        self.code = "pass"

    def probe(self, device):
        self.probed.append(device)
        self.process = subprocess.Popen([sys.executable, "-c", self.code],
                                        stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        return self.process

    def absent(self, first_wait=10):
        return Absent(first_wait, self.said.append, self.probe,
                      lambda: self.time)

    def take(self, absent):
        """Returns the device of the rank that comes back after its probe."""
        self.assertIsNone(absent.take())
        self.process.wait()
        taken = absent.take()
        return taken and taken.device

    def test_a_rank_comes_back_after_a_probe(self):
        absent = self.absent()
        self.assertEqual(absent.add("b"), "for 10 s at least")
        self.time = 9
        self.assertIsNone(absent.take())
        self.assertEqual(self.probed, [])
        self.time = 10
        self.assertEqual(self.take(absent), "b")
        self.assertEqual(self.probed, ["b"])
        # No other rank is left out.
        self.time = 1000
        self.assertIsNone(absent.take())
        self.assertEqual(self.probed, ["b"])

    def test_a_rank_whose_device_does_not_compute_stays_away(self):
        absent = self.absent()
        absent.add("b")
        self.time, self.code = 10, "raise ValueError('no kernel image')"
        self.assertIsNone(self.take(absent))
        self.assertEqual(self.said, [
            "the rank that is left out could not run: its GPU or processor "
            "does not compute (ValueError: no kernel image); it stays left "
            "out for 20 s at least"])
        self.time, self.code = 30, "pass"
        self.assertEqual(self.take(absent), "b")

    def test_a_probe_that_hangs_has_failed(self):
        absent = self.absent()
        absent.add("b")
        self.time, self.code = 10, "import time; time.sleep(1000)"
        self.assertIsNone(absent.take())
        self.assertIsNone(absent.take())
        self.assertEqual(self.said, [])
        self.time = 10 + 120
        self.assertIsNone(absent.take())
        self.assertIn("(no answer)", self.said[0])
        self.assertIsNotNone(self.process.returncode)

    def test_a_probe_that_does_not_end_when_killed_has_failed(self):
        absent = self.absent()
        absent.add("b")
        # A child of the probe keeps the pipe open for 20 s.
        self.code = ("import os, sys, time\n"
                     "seconds = 1000 if os.fork() else 20\n"
                     "print('begun', flush=True)\n"
                     "time.sleep(seconds)\n"
                     "sys.exit('late')")
        self.time = 10
        self.assertIsNone(absent.take())
        for _ in range(2):
            self.process.stdout.readline()
        self.time = 10 + 120
        self.assertIsNone(absent.take())
        self.assertIn("(no answer)", self.said[0])
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def test_the_wait_has_a_limit(self):
        absent = self.absent()
        absent.add(None)
        waits = []
        for _ in range(6):
            self.time += 1000
            self.assertIsNone(absent.take())
            self.process.wait()
            rank = absent.take()
            absent.put_back(rank)
            waits.append(rank.wait)
        self.assertEqual(waits, [20, 40, 80, 160, 160, 160])
        self.assertEqual(waits[-1], 10 * MOST_WAITS)

    def test_ranks_come_back_one_after_the_other(self):
        absent = self.absent()
        for device in ("b", "c"):
            absent.add(device)
        self.time = 10
        self.assertEqual([self.take(absent) for _ in range(2)], ["b", "c"])

    def test_no_rank_comes_back_without_a_wait(self):
        absent = self.absent(first_wait=0)
        self.assertEqual(absent.add("b"), "for as long as causeway.run lives")
        self.time = 10**9
        self.assertIsNone(absent.take())

    def test_a_processor_that_computes_passes_the_probe(self):
        process = start_probe(None)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 0, errors)


if __name__ == "__main__":
    unittest.main()
