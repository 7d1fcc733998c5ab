# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Hugging Face's transformers as an island."""

import importlib
import json
import os
import sys
import unittest
from unittest import mock

import trainer_island

# pylint: disable=wrong-import-order
import torch
import transformers

import causeway
from causeway.testing.processes import ProcessTestCase


class TrainerTest(ProcessTestCase):

    def begin(self, steps):
        return self.start_coordinator(
            self.create_run(trainer_island.llama(), min_islands=1,
                            total_steps=steps, fragments=2))

    def settings(self, **settings):
        join = {"coordinator": self.address, "island": "east", "timeout": 60}
        return {"output": self.path("out"), "join": join, **settings}

    def train(self, **settings):
        """Trains in this process; returns the steps of the island."""
        return trainer_island.transformers_trainer(
            **self.settings(**settings))[0]

    def train_two_ranks(self, **settings):
        """Trains as torchrun does; returns the steps of the island."""
        launcher = self.start("torchrun", [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            "--nproc_per_node=2", trainer_island.__file__,
            "transformers_trainer", json.dumps(self.settings(**settings))
        ])
        self.assert_ends_well(launcher)
        first, second = launcher.events()
        self.assertNotEqual(first["rank"], second["rank"])
        self.assertEqual(first["steps"], second["steps"])
        self.assertEqual(first["checksum"], second["checksum"])
        return first["steps"]

    def test_it_stops_with_the_run(self):
        coordinator = self.begin(20)
        self.assertEqual(self.train(), [*range(1, 21), 20])
        self.assert_ends_well(coordinator)

    def test_two_ranks_stop_early_and_go_on_from_their_checkpoint(self):
        coordinator = self.begin(30)
        steps = self.train_two_ranks(last=14, save_strategy="steps",
                                     save_steps=13)
        self.assertEqual(steps, list(range(1, 15)))
        steps = self.train_two_ranks(resume=self.path("out/checkpoint-13"))
        self.assertEqual((steps[0], steps[-1]), (14, 30))
        self.assert_ends_well(coordinator)

    def test_a_checkpoint_from_elsewhere_says_so_or_is_named(self):
        coordinator = self.begin(30)
        self.train(last=14, save_strategy="steps", save_steps=13)
        moved = self.path("moved")
        os.rename(self.path("out/checkpoint-13"), moved)
        with self.assertLogs("causeway", "WARNING") as logs:
            steps = self.train(resume=moved, last=2)
        self.assertIn("checkpoint-13/causeway: the island begins with",
                      logs.output[0])
        self.assertGreater(steps[0], 14)
        steps = self.train(
            resume=moved, join={"coordinator": self.address, "island": "east",
                                "resume": f"{moved}/causeway"})
        self.assertEqual(steps[0], 14)
        self.assert_ends_well(coordinator)

    def test_the_best_model_of_an_early_stop_is_not_handed_in(self):
        self.begin(100)
        # The first loss is the highest one, which here is the best.
        early = transformers.EarlyStoppingCallback(
            early_stopping_patience=1)
        steps = self.train(callbacks=[early], load_best_model_at_end=True,
                           metric_for_best_model="loss", greater_is_better=True,
                           save_strategy="steps", eval_strategy="steps",
                           save_steps=4, eval_steps=4)
        self.assertEqual(steps, list(range(1, 10)))
        first, last = (
            trainer_island.checksum(
                transformers.LlamaForCausalLM.from_pretrained(
                    self.path(f"out/checkpoint-{step}"))) for step in (4, 8))
        model = trainer_island.llama()
        with causeway.join(self.address, island="east") as island:
            island.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
            merged = trainer_island.checksum(model)
        self.assertAlmostEqual(merged, last, places=3)
        self.assertNotAlmostEqual(merged, first, places=1)

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
        with mock.patch.object(torch, "__version__", "1.13.1+cpu"):
            with self.assertRaisesRegex(ImportError, "2.6 or .* is 1.13.1"):
                importlib.reload(module)


if __name__ == "__main__":
    unittest.main()
