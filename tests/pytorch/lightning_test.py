# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Lightning as an island."""

import importlib
import sys
import unittest
from unittest import mock

import trainer_island
from trainer_testing import TrainerTestCase

import causeway


class LightningTest(TrainerTestCase):

    function = "lightning_trainer"
    imports = ["lightning.pytorch"]
    model = trainer_island.Tiny

    def test_it_stops_with_the_run(self):
        self.assert_stops_with_the_run([*range(1, 21), 20])

    def test_the_run_hears_of_losses(self):
        self.begin(20)
        # Lightning divides losses of accumulated batches.
        losses = self.losses_of_training(accumulate_grad_batches=2)
        first = float(trainer_island.Tiny()(trainer_island.rows()[:2]))
        self.assertAlmostEqual(losses[0], first, places=5)
        self.assertLess(losses[-1], losses[0])

    def test_two_ranks_go_on_from_a_checkpoint_and_stop_early(self):
        self.begin(200)
        # A step has two batches of each rank.
        self.train_two_ranks(code=1, fails=16, save_steps=13,
                             accumulate_grad_batches=2)
        end = self.train_two_ranks(resume=self.path("out/step=13.ckpt"),
                                   last=16, accumulate_grad_batches=2)
        # The list begins with the first step, and ends with the one stopped in.
        self.assertEqual(end["steps"][::2], list(range(14, 22)))
        self.assert_run_gets(end["checksum"])

    def test_an_exception_lets_the_island_leave(self):
        coordinator = self.begin(20)
        with self.assertRaisesRegex(ValueError, "a bad batch"):
            self.train(fails=8)
        # The name is free. The callback serves the other package's Trainer.
        steps = self.train(package="pytorch_lightning")
        self.assertGreater(steps[0], 7)
        self.assertEqual(steps[-1], 20)
        self.assert_ends_well(coordinator)

    def test_what_others_put_into_the_model_at_the_end_is_not_handed_in(self):
        from lightning.pytorch import Callback
        trained = []

        class Averages(Callback):

            def on_train_end(self, trainer, pl_module):
                trained.append(trainer_island.checksum(pl_module.network))
                for parameter in pl_module.parameters():
                    parameter.data.zero_()

        self.begin(200)
        self.train(last=10, callbacks=[Averages()])
        self.assert_run_gets(*trained)

    def test_bad_input_is_refused_before_it_trains(self):
        self.begin(20)
        nowhere = {"coordinator": "127.0.0.1:1", "timeout": 1}
        for settings, kind, message in (
            ({"join": nowhere}, causeway.Timeout, "127.0.0.1:1"),
            ({"join": {"islands": "east"}}, TypeError, "argument 'islands'"),
            ({"device": "meta"}, causeway.ModelMismatch,
             "network.embedding.weight is on the device meta"),
        ):
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                self.train(**settings)

    def test_an_extra_that_is_missing_is_named(self):
        module = importlib.import_module("causeway.lightning")
        with mock.patch.dict(sys.modules, {"lightning": None,
                                           "pytorch_lightning": None}):
            with self.assertRaisesRegex(ImportError, "install 'lightning>=2"):
                importlib.reload(module)


if __name__ == "__main__":
    unittest.main()
