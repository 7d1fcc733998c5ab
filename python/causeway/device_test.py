# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

import torch

from causeway import device
from causeway.device import Losses


class FakeSlot:
    """A slot whose device says when it is ready."""

    ready = 0

    def fill(self, step, loss, _):
        self.step, self._loss = step, loss

    def is_ready(self):
        return self.step <= FakeSlot.ready

    def wait(self):
        FakeSlot.ready = max(FakeSlot.ready, self.step)

    def value(self):
        return float(self._loss)


class LossesTest(unittest.TestCase):

    def setUp(self):
        FakeSlot.ready = 0
        with mock.patch.object(device, "_make_slots",
                               lambda: [FakeSlot() for _ in range(3)]):
            self.losses = Losses(mock.Mock(device=torch.device("cpu")))

    def read(self, step, loss=None):
        return self.losses.read(
            step, loss if loss is None else torch.tensor(loss))

    def test_what_is_not_on_the_device_is_known_at_once(self):
        for losses in (self.losses, Losses(None)):
            self.assertEqual(losses.read(1, 2.5), [(1, 2.5)])
            self.assertEqual(losses.read(2, None), [])
            self.assertFalse(losses)
        self.assertEqual(Losses(None).read(2, torch.tensor(3.0)), [(2, 3.0)])

    def test_what_is_on_the_device_is_known_when_it_is_computed(self):
        self.assertEqual(self.read(1, 4.0), [])
        self.assertEqual(self.read(2, 3.0), [])
        self.assertEqual(len(self.losses), 2)
        FakeSlot.ready = 2
        self.assertEqual(self.read(3, 2.0), [(1, 4.0), (2, 3.0)])
        FakeSlot.ready = 3
        # This step has no report.
        self.assertEqual(self.read(4), [(3, 2.0)])
        self.assertFalse(self.losses)

    def test_waits_for_a_device_that_is_far_behind(self):
        for step in range(1, 4):
            self.assertEqual(self.read(step, 0.5), [])
        for step in range(4, 8):
            self.assertEqual(self.read(step, 0.5), [(step - 3, 0.5)])
        self.assertEqual(FakeSlot.ready, 4)


if __name__ == "__main__":
    unittest.main()
