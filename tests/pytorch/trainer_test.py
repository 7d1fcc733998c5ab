# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Hugging Face's transformers as an island."""

import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"
# pylint: disable=wrong-import-position
import torch
import transformers

import causeway
from causeway.testing.processes import ProcessTestCase
from causeway.transformers import CausewayCallback

_CONFIG = transformers.LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=16,
    pad_token_id=None, bos_token_id=None, eos_token_id=None)


class Noted(transformers.TrainerCallback):
    """Notes the island's next steps, and stops after as many."""

    def __init__(self, callback, last=None):
        self._callback, self._last, self.steps = callback, last, []

    def on_train_begin(self, args, state, control, **kwargs):
        self.steps.append(self._callback.island.step)

    def on_step_end(self, args, state, control, **kwargs):
        self.steps.append(self._callback.island.step)
        if len(self.steps) == self._last:
            control.should_training_stop = True


class TrainerTest(ProcessTestCase):

    def begin(self, steps):
        return self.start_coordinator(
            self.create_run(self.model(), min_islands=1, total_steps=steps,
                            fragments=2))

    def model(self):
        torch.manual_seed(1)
        return transformers.LlamaForCausalLM(_CONFIG)

    def train(self, last=None, resume=None, **arguments):
        """Trains; returns the steps of the island."""
        data = [{"input_ids": row, "labels": row}
                for row in torch.arange(64 * 8).view(64, 8) % 7]
        callback = CausewayCallback(self.address, island="east", timeout=60)
        noted = Noted(callback, last)
        fields = dict(output_dir=self.path("out"), max_steps=1000,
                      per_device_train_batch_size=2, learning_rate=1e-2,
                      gradient_accumulation_steps=2, use_cpu=True,
                      report_to=[], disable_tqdm=True, save_strategy="no")
        trainer = transformers.Trainer(
            self.model(), transformers.TrainingArguments(
                **{**fields, **arguments}), train_dataset=data,
            callbacks=[callback, noted])
        trainer.train(resume_from_checkpoint=resume)
        self.assertIsNone(callback.island)
        return noted.steps

    def test_it_stops_with_the_run(self):
        coordinator = self.begin(20)
        steps = self.train()
        self.assertEqual(steps, [*range(1, 21), 20])
        self.assert_ends_well(coordinator)

    def test_it_stops_early_and_goes_on_from_its_checkpoint(self):
        coordinator = self.begin(30)
        steps = self.train(last=14, save_strategy="steps", save_steps=13)
        self.assertEqual(steps, list(range(1, 15)))
        steps = self.train(resume=self.path("out/checkpoint-13"))
        self.assertEqual((steps[0], steps[-1]), (14, 30))
        self.assert_ends_well(coordinator)

    def test_another_model_is_refused_before_it_trains(self):
        self.start_coordinator(
            self.create_run(torch.nn.Linear(2, 2), min_islands=1, fragments=1))
        with self.assertRaisesRegex(causeway.ModelMismatch,
                                    "the model has no parameter weight"):
            self.train()


if __name__ == "__main__":
    unittest.main()
