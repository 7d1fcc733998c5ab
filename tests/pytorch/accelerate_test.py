# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A loop with accelerate as an island: nothing but join() and attach()."""

import unittest

import trainer_island
from trainer_testing import TrainerTestCase


class AccelerateTest(TrainerTestCase):

    function = "accelerate_loop"
    imports = ["accelerate"]
    model = trainer_island.Tiny

    def test_it_stops_with_the_run(self):
        self.assert_stops_with_the_run([*range(2, 21), 20])

    def test_two_ranks_go_on_from_a_checkpoint_and_stop_early(self):
        self.begin(200)
        self.train_two_ranks(code=1, fails=16, save_steps=13)
        end = self.train_two_ranks(resume=self.path("out"), last=8)
        self.assertEqual(end["steps"], list(range(15, 23)))
        self.assert_run_gets(end["checksum"])


if __name__ == "__main__":
    unittest.main()
