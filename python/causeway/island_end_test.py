# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how islands end, and what comes after."""

import unittest

import causeway
from causeway.testing.one_island import OneIslandTestCase


class IslandEndTest(OneIslandTestCase):

    def assert_left(self, reason):
        events = self.tool("events", "--coordinator", self.address)
        self.assertRegex(events, f"island_left .*east.*{reason}")

    def test_the_operator_sees_what_has_ended_a_loop(self):
        self.begin()
        for error, reason in ((ValueError("no such file"),
                               "ValueError: no such file"),
                              (KeyboardInterrupt(), "KeyboardInterrupt")):
            with self.assertRaises(type(error)):
                with self.join() as island:
                    island.attach(self.model, self.optimizer)
                    self.step()
                    raise error
            self.assert_left(reason)
        with self.join() as island:
            island.attach(self.model, self.optimizer)
            island.request_leave("no disk")
        self.assert_left("no disk")

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
