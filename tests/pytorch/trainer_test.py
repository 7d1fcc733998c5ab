# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Hugging Face's transformers as an island."""

import importlib
import os
import sys
import unittest
from unittest import mock

import trainer_island
from trainer_testing import TrainerTestCase

# pylint: disable=wrong-import-order
import torch
import transformers

import causeway


class TrainerTest(TrainerTestCase):

    function = "transformers_trainer"
    imports = ["transformers.trainer"]
    model = staticmethod(trainer_island.llama)

    def test_it_stops_with_the_run(self):
        self.assert_stops_with_the_run([*range(1, 21), 20])

    def test_the_run_hears_of_losses(self):
        self.begin(20)
        losses = self.losses_of_training(logging_steps=5)
        # The last one comes when the run is over.
        self.assertEqual(len(losses), 3)
        self.assertLess(losses[-1], losses[0])

    def test_two_ranks_go_on_from_a_checkpoint_and_stop_early(self):
        self.begin(200)
        self.train_two_ranks(code=1, fails=16, save_steps=13)
        end = self.train_two_ranks(resume=self.path("out/checkpoint-13"),
                                   last=8)
        self.assertEqual(end["steps"], list(range(14, 22)))
        self.assert_run_gets(end["checksum"])

    def test_two_ranks_shard_the_model(self):
        self.begin(200)
        end = self.train_two_ranks(last=8, fsdp="full_shard",
                                   fsdp_config={"version": 2})
        self.assertEqual(end["steps"], list(range(1, 9)))
        self.assert_run_gets(end["checksum"])

    def test_a_checkpoint_from_elsewhere_is_named_or_missed(self):
        self.begin(200)
        with self.assertRaisesRegex(ValueError, "a bad batch"):
            self.train(fails=16, save_steps=13)
        moved = self.path("moved")
        os.rename(self.path("out/checkpoint-13"), moved)
        join = {"coordinator": self.address, "island": "east"}
        steps = self.train(resume=moved, last=2,
                           join={**join, "resume": f"{moved}/causeway"})
        self.assertEqual(steps, [14, 15])
        with self.assertLogs("causeway", "WARNING") as logs:
            self.train(resume=moved, last=2, join=join)
        self.assertIn("checkpoint-13/causeway: the island begins with",
                      logs.output[0])

    def test_the_best_model_of_an_early_stop_is_not_handed_in(self):
        self.begin(100)
        # The first loss is the highest one, which here is the best.
        early = transformers.EarlyStoppingCallback(
            early_stopping_patience=1)
        steps = self.train(callbacks=[early], load_best_model_at_end=True,
                           metric_for_best_model="loss", greater_is_better=True,
                           save_steps=4, eval_steps=4, eval_strategy="steps")
        self.assertEqual(steps, list(range(1, 10)))
        first, last = (
            trainer_island.checksum(
                transformers.LlamaForCausalLM.from_pretrained(
                    self.path(f"out/checkpoint-{step}"))) for step in (4, 8))
        self.assertNotAlmostEqual(first, last, places=1)
        self.assert_run_gets(last)

    def test_bad_input_is_refused_before_it_trains(self):
        self.start_coordinator(
            self.create_run(torch.nn.Linear(2, 2), min_islands=1, fragments=1))
        nowhere = {"coordinator": "127.0.0.1:1", "timeout": 1}
        meta = trainer_island.llama().to("meta")
        for join, model, kind, message in (
            ({}, None, causeway.InvalidArgument, "no coordinator: pass host"),
            (nowhere, None, causeway.Timeout, "127.0.0.1:1"),
            ({"islands": "east"}, None, TypeError, "argument 'islands'"),
            ({"coordinator": self.address}, None, causeway.ModelMismatch,
             "the model has no parameter weight"),
            ({"coordinator": self.address}, meta, Exception, "meta"),
        ):
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                self.train(join=join, model=model)

    def test_an_extra_that_is_missing_or_too_old_is_named(self):
        module = sys.modules["causeway.transformers"]
        with mock.patch.dict(sys.modules, {"transformers": None}):
            with self.assertRaisesRegex(ImportError, "pip install 'transf"):
                importlib.reload(module)
        for package, version, message in (
            ("torch", "1.13.1+cpu", "2.6 or .* is 1.13.1"),
            # Its module may be another one than when this file imported it.
            ("transformers", "5.2.0", "5.3 or .* is 5.2.0")):
            with mock.patch.object(sys.modules[package], "__version__",
                                   version):
                with self.assertRaisesRegex(ImportError, message):
                    importlib.reload(module)


if __name__ == "__main__":
    unittest.main()
