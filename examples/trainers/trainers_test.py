# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the examples as users start them."""

import os
import unittest

import create_run
import peft
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from causeway.creation import RunFiles
from causeway.testing.processes import ProcessTestCase

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_TEXT = "/usr/share/common-licenses/GPL-3"
_TRAINERS = ("accelerate", "lightning", "transformers")


def loss_of(model):
    with torch.no_grad():
        rows = create_run.samples(_TEXT)[:64]
        return float(model(input_ids=rows, labels=rows).loss)


class TrainersTest(ProcessTestCase):

    def run_script(self, script, *arguments, **environment):
        return self.start_script(os.path.join(_FOLDER, script), *arguments,
                                 **environment)

    def train(self, run, islands):
        """Trains with islands, each a name and its script's arguments."""
        coordinator = self.start_coordinator(
            RunFiles(f"{run}/run.textproto", f"{run}/initial.safetensors"))
        processes = [
            self.run_script(*arguments, HF_HUB_OFFLINE=1, OMP_NUM_THREADS=1,
                            CAUSEWAY_COORDINATOR=self.address,
                            CAUSEWAY_ISLAND=name)
            for name, arguments in islands.items()]
        for process in (*processes, coordinator):
            self.assert_ends_well(process)

    def test_an_island_of_each_trainer_trains_one_model(self):
        run = self.path("run")
        self.assert_ends_well(self.run_script("create_run.py", run, "3"))
        self.train(run, {name: [f"{name}_island.py", _TEXT, self.path(name)]
                         for name in _TRAINERS})
        models = [LlamaForCausalLM.from_pretrained(self.path(name))
                  for name in _TRAINERS]
        for model in models[1:]:
            for key, values in models[0].state_dict().items():
                self.assertTrue(torch.equal(values, model.state_dict()[key]))
        self.assertLess(loss_of(models[0]), 0.7 * loss_of(create_run.llama()))

    def test_islands_fine_tune_an_adapter(self):
        base, run = self.path("base"), self.path("run")
        create_run.llama().save_pretrained(base)
        script = ["lora_island.py", base]
        self.assert_ends_well(
            self.run_script(*script, "create", run, HF_HUB_OFFLINE=1))
        self.train(run, {name: [*script, _TEXT, self.path(name)]
                         for name in ("east", "west")})
        self.tool("export", self.path("state"), "--out", self.path("adapter"),
                  "--like", run)
        adapters = [
            load_file(self.path(f"{name}/adapter_model.safetensors"))
            for name in ("adapter", "east", "west")]
        for name, values in adapters[0].items():
            for other in adapters[1:]:
                self.assertTrue(torch.equal(values, other[name]))
        model = LlamaForCausalLM.from_pretrained(base)
        before = loss_of(model)
        model = peft.PeftModel.from_pretrained(model, self.path("adapter"))
        self.assertLess(loss_of(model), 0.97 * before)

    def test_each_has_fewer_than_40_lines(self):
        for name in (*_TRAINERS, "lora"):
            with open(os.path.join(_FOLDER, f"{name}_island.py"),
                      encoding="utf-8") as file:
                self.assertLess(len(file.readlines()), 40)


if __name__ == "__main__":
    unittest.main()
