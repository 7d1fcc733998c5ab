# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how islands end, and what comes after."""

import logging
import multiprocessing
import os
import signal
import unittest
from multiprocessing import connection
from unittest import mock

import torch

import causeway
from causeway.leaving import LeaveOnSigterm
from causeway.testing.least_squares import LeastSquares
from causeway.testing.one_island import OneIslandTestCase
from causeway.testing.processes import TERMINATE


class Asked:
    is_asked = False

    def __init__(self, writer):
        self._writer = writer

    def ask(self):
        os.write(self._writer, b"1")
        self.is_asked = True


class IslandEndTest(OneIslandTestCase):

    def assert_left(self, reason, kind="island_left"):
        events = self.tool("events", "--coordinator", self.address)
        self.assertRegex(events, f"{kind} .*east.*{reason}")

    def test_the_operator_sees_what_has_ended_a_loop(self):
        self.begin()
        for error, reason, kind in (
            (ValueError("no such file"), "failed: ValueError: no such file",
             "island_failed"),
            (KeyboardInterrupt(), "KeyboardInterrupt", "island_left")):
            with self.assertRaises(type(error)):
                with self.join() as island:
                    island.attach(self.model, self.optimizer)
                    self.step()
                    with island.merged_weights():
                        raise error
            self.assert_left(reason, kind)
        with self.assertRaises(FileNotFoundError):
            with self.join():
                raise FileNotFoundError("no corpus")
        self.assert_left("FileNotFoundError: no corpus", "island_failed")
        for leave in ("leave", "request_leave"):
            with self.join() as island:
                island.attach(self.model, self.optimizer)
                getattr(island, leave)(f"no disk to {leave}")
            self.assert_left(f"no disk to {leave}")

    def test_a_copy_that_resumes_does_not_take_its_place(self):
        with self.attached() as island:
            island.save(self.path("saved"))
            copy = self.start_island("east",
                                     join={"resume": self.path("saved")})
            self.assert_ends_well(copy, 1)
            self.assertIn("that process is alive", copy.output())
            self.step()

    def test_a_signal_to_data_loaders_too_lets_the_island_leave(self):
        with self.attached() as island:
            data = torch.arange(80)
            for _ in torch.utils.data.DataLoader(
                    data, batch_sampler=island.sampler(data, 4),
                    num_workers=2):
                os.kill(os.getpid(), TERMINATE)
                while not island._is_signalled:
                    pass
                # A launcher passes it on.
                os.kill(os.getpid(), TERMINATE)
                workers = multiprocessing.active_children()
                for worker in workers:
                    worker.kill()
                    connection.wait([worker.sentinel])
                self.step()
                self.assertTrue(island.should_stop)
                break
            self.assertEqual(len(workers), 2)
        self.assert_left("SIGTERM")

    def test_a_later_signal_ends_the_process(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        child = os.fork()
        if child == 0:
            try:
                with mock.patch("causeway.leaving._ONE_SIGNAL_SECONDS", 0):
                    asked = Asked(writer)
                    LeaveOnSigterm(asked.ask)
                    os.kill(os.getpid(), TERMINATE)
                    while not asked.is_asked:
                        pass
                    os.kill(os.getpid(), TERMINATE)
            finally:
                os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], TERMINATE)
        self.assertEqual(os.read(reader, 2), b"1")

    def test_an_island_that_is_lost_with_its_loop_frees_its_name(self):
        self.begin()

        def lose():
            model = LeastSquares()
            self.join().attach(
                model, torch.optim.SGD(model.parameters(), lr=0.4))
            raise FileNotFoundError

        with self.assertRaises(FileNotFoundError):
            lose()
        with self.join():
            os.kill(os.getpid(), TERMINATE)
        self.assertIs(signal.getsignal(TERMINATE), signal.SIG_DFL)

    def test_a_loop_that_ends_before_the_run_is_warned(self):
        with self.assertLogs("causeway", "WARNING") as logs:
            with self.attached(total_steps=20) as island:
                for _ in range(10):
                    self.step()
        self.assertIn("training ended at step 11 of 20, so the island leaves: "
                      "does the loop end with its data?", str(logs.output))
        self.assert_left("training ended at step 11 of 20")
        for end in (causeway.Island.leave, causeway.Island.request_leave,
                    lambda _: [self.step() for _ in range(20)]):
            with self.assertLogs("causeway", "WARNING") as logs:
                logging.getLogger("causeway").warning("alone")
                with self.join() as island:
                    island.attach(self.model, self.optimizer)
                    end(island)
            self.assertNotIn("so the island leaves", str(logs.output))

    def test_an_optimizer_of_an_island_that_has_ended_is_free(self):
        self.begin()
        failed = self.join()
        failed.attach(self.model, self.optimizer)
        failed._native.fail(causeway.Diverged("a value is not finite"))
        with self.assertRaises(causeway.Diverged):
            self.step()
        with self.join() as island:
            island.attach(self.model, self.optimizer)
            self.step()
            self.assertEqual(island.step, 2)
            with causeway.join(self.address, island="west") as other:
                with self.assertRaisesRegex(
                        causeway.InvalidArgument,
                        "attached to another island, which still trains"):
                    other.attach(self.model, self.optimizer)
            self.step()
            self.assertEqual(island.step, 3)
        with self.assertRaises(causeway.Diverged):
            failed.wait()


if __name__ == "__main__":
    unittest.main()
