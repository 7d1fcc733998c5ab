# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the example of JAX as users start it."""

import os
import re
import unittest

from causeway.creation import RunFiles
from causeway.testing.processes import ProcessTestCase

_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "train_text.py")
_TEXT = "/usr/share/common-licenses/GPL-3"


class TrainTextTest(ProcessTestCase):

    def test_two_islands_learn_one_model(self):
        self.assert_ends_well(self.start_script(
            _SCRIPT, "--create", self.path("run"), "--steps", "200"))
        coordinator = self.start_coordinator(RunFiles(
            self.path("run/run.textproto"),
            self.path("run/initial.safetensors")))
        islands = [
            self.start_script(_SCRIPT, "--data", _TEXT, "--island", name,
                              "--coordinator", self.address)
            for name in ("east", "west")
        ]
        losses = []
        for island in islands:
            self.assert_ends_well(island)
            begin, end = re.findall(r"validation loss ([0-9.]+)",
                                    island.output())
            self.assertLess(float(end), 0.7 * float(begin))
            losses.append(end)
        self.assertEqual(losses[0], losses[1])
        self.assert_ends_well(coordinator)


if __name__ == "__main__":
    unittest.main()
