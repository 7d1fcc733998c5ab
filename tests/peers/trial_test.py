# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The worker of the comparison with peers, as an island and alone."""

import os
import unittest

from causeway.creation import RunFiles
from causeway.testing.processes import ProcessTestCase

import figures

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SETTING = "2 workers, 100 Mbit/s, 50 ms"


class TrialTest(ProcessTestCase):

    def work(self, peer, **environment):
        return self.start_script(
            f"{_FOLDER}/peer_{peer}.py", "--data",
            "/usr/share/common-licenses/GPL-3", "--steps", "24", "--round", "8",
            "--block_ms", "0", WORKERS=2, **environment)

    def work_twice(self, peer, **environment):
        """Runs two workers, and keeps their logs as compare.sh does."""
        workers = [self.work(peer, WORKER=worker, **environment,
                             CAUSEWAY_ISLAND=f"worker-{worker}")
                   for worker in range(2)]
        for worker, process in enumerate(workers):
            self.assert_ends_well(process)
            path = self.path(f"{peer}.2.100:50.none.{worker}.log")
            with open(path, "w", encoding="utf-8") as log:
                log.write(process.output())

    def test_islands_and_workers_that_nothing_connects_are_compared(self):
        folder = self.path("run")
        self.assert_ends_well(self.work("causeway", CREATE_RUN=folder))
        coordinator = self.start_coordinator(
            RunFiles(f"{folder}/run.textproto",
                     f"{folder}/initial.safetensors"))
        self.work_twice("causeway", CAUSEWAY_COORDINATOR=self.address)
        self.assert_ends_well(coordinator)
        self.work_twice("alone")
        report = figures.collect(self.folder)
        alone, island = (report[peer][_SETTING]
                         for peer in ("alone", "causeway"))
        self.assertEqual(alone["share_of_unconnected"], 1)
        self.assertGreater(island["tokens_per_second"], 0)
        # A model that has learnt nothing has 5.5.
        for loss in (alone["loss_equal_tokens"], island["loss_equal_tokens"]):
            self.assertLess(loss, 4.5)

    def test_what_a_kill_loses(self):
        # The second worker dies in its step 13, and continues with step 11.
        for worker, first, last, pause in (("0", 1, 20, 3), ("1", 1, 12, 0),
                                           ("1-again", 11, 20, 0)):
            path = self.path(f"causeway.2.100:50.worker.{worker}.log")
            with open(path, "w", encoding="utf-8") as log:
                for step in range(first, last + 1):
                    log.write(f"step {step} {step + pause * (step > 10)}\n")
                log.write('{"steps": 19}\n' if last == 20 else "")
        with open(self.path("causeway.2.100:50.worker.killed"), "w",
                  encoding="ascii") as file:
            file.write("10.0\n")
        report = figures.collect(self.folder)
        self.assertEqual(report["causeway"][_SETTING],
                         {"seconds_lost_worker": 3.0,
                          "steps_lost_worker": 2})

    def test_the_seconds_to_the_first_merge(self):
        for peer in ("alone", "causeway", "powersgd", "hivemind"):
            path = self.path(f"{peer}.2.100:50.none.0.log")
            with open(path, "w", encoding="utf-8") as log:
                log.write("step 1 101.0\nstep 2 102.0\n"
                          "[INFO] Averaged parameters with 1 peers\n"
                          "step 3 103.0\n"
                          "[INFO] Averaged parameters with 2 peers\n"
                          "step 4 104.0\nstep 5 105.0\n"
                          '{"steps": 4, "tokens_per_second": 1, '
                          '"bytes_per_step": 1, "curve": [[2, 1.5, 3.0]]}\n')
            with open(self.path(f"{peer}.2.100:50.none.began"), "w",
                      encoding="ascii") as file:
                file.write("90.0\n")
        report = figures.collect(self.folder)
        seconds = {peer: settings[_SETTING].get("seconds_to_first_merge")
                   for peer, settings in report.items()}
        self.assertEqual(seconds, {"alone": None, "causeway": 12.5,
                                   "powersgd": 11.0, "hivemind": 14.0})

    def test_the_loss_between_two_rounds_is_interpolated(self):
        curve = [[40, 10.0, 3.0], [80, 20.0, 2.0]]
        self.assertIsNone(figures.loss_at(curve, 5))
        self.assertEqual(figures.loss_at(curve, 15), 2.5)
        self.assertEqual(figures.loss_at(curve, 25), 2.0)


if __name__ == "__main__":
    unittest.main()
