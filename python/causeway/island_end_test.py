# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how islands end, and what comes after."""

import unittest

import causeway
from causeway.testing.one_island import OneIslandTestCase


class IslandEndTest(OneIslandTestCase):

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
