# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Runs of PEFT's adapters, whose base no island sends."""

import json
import os
import re
import subprocess
import unittest

import trainer_island
from trainer_testing import TrainerTestCase

# pylint: disable=wrong-import-order
import peft
import torch
import transformers
from safetensors.torch import load_file

import causeway
from causeway.adapters import run_slots
from causeway.parameters import slots_of

adapted, llama = trainer_island.adapted, trainer_island.llama


def names_of(model):
    return list(run_slots(model, slots_of(model)))


class LoraTest(TrainerTestCase):

    function = "lora_trainer"
    imports = ["transformers.trainer", "peft"]
    model = staticmethod(adapted)

    def create_run(self, model, **fields):
        return super().create_run(model, trainable_only=True, **fields)

    def quantized(self):
        """Returns a base of 4 bits a value."""
        llama().save_pretrained(self.path("base"))
        return transformers.AutoModelForCausalLM.from_pretrained(
            self.path("base"),
            quantization_config=transformers.BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True))

    def begin_run(self, model, **fields):
        return self.start_coordinator(
            self.create_run(model, **{"min_islands": 1, "fragments": 1,
                                      **fields}))

    def attach(self, model):
        """Attaches an island that makes two steps."""
        with causeway.join(self.address, island="east", timeout=60) as island:
            optimizer = torch.optim.AdamW(
                [p for p in model.parameters() if p.requires_grad], 1e-2)
            island.attach(model, optimizer)
            model.train()
            batch = trainer_island.rows()[:2]
            for _ in range(2):
                loss = model(input_ids=batch, labels=batch).loss
                loss.backward()
                island.report(tokens=batch.numel(), loss=loss)
                optimizer.step()
            return island.run

    def test_two_islands_train_an_adapter_that_peft_loads(self):
        coordinator = self.begin_run(adapted(), min_islands=2, total_steps=40,
                                     overlap_steps=2, format="INT4")
        islands = [
            self.fork(name, [
                trainer_island.__file__, self.function,
                json.dumps(dict(
                    output=self.path(name), learning_rate=1e-2,
                    join={"coordinator": self.address, "island": name}))
            ]) for name in ("east", "west")]
        for process in (*islands, coordinator):
            self.assert_ends_well(process)
        # Initial values that differed have become the run's.
        trained, other = (load_file(
            self.path(f"{name}/adapter/adapter_model.safetensors"))
                          for name in ("east", "west"))
        exported = self.path("exported")
        said = self.tool("export", self.path("state"), "--out", exported,
                         "--like", self.path("run"))
        with open(self.path("run/run.textproto"), encoding="utf-8") as file:
            self.assertIn(re.search("frozen:sha256:[0-9a-f]{64}",
                                    file.read())[0], said)
        model = peft.PeftModel.from_pretrained(llama(), exported)
        loaded = peft.get_peft_model_state_dict(model)
        self.assertEqual(loaded.keys(), trained.keys())
        for name, values in loaded.items():
            self.assertTrue(torch.equal(values, trained[name]), name)
            self.assertTrue(torch.equal(values, other[name]), name)
            if "lora_B" in name:
                self.assertGreater(float(values.abs().max()), 0)
        rows = trainer_island.rows()
        before, after = (float(each(input_ids=rows, labels=rows).loss)
                         for each in (llama(), model))
        self.assertLess(after, 0.97 * before)
        # No island sent the base.
        size = os.path.getsize(self.path("run/initial.safetensors"))
        values = sum(each.numel() for each in loaded.values())
        self.assertLess(size, 4 * values + 4096)

    def test_the_names_are_those_of_peft(self):
        for config in ({}, {"use_dora": True}, {"bias": "lora_only"},
                       {"modules_to_save": ["lm_head"]},
                       {"target_modules": "all-linear", "r": 2}):
            with self.subTest(config):
                model = adapted(**config)
                model.save_pretrained(self.path("saved"))
                self.assertEqual(
                    set(names_of(model)),
                    set(load_file(
                        self.path("saved/adapter_model.safetensors"))))

    def test_a_frozen_part_of_the_adapter_comes_from_the_run(self):
        # Only B is trained, as in FFA-LoRA.
        model, other = adapted(), adapted()
        for each in (model, other):
            for name, parameter in each.named_parameters():
                parameter.requires_grad_("lora_B" in name)
        self.begin_run(model)
        self.attach(other)
        for name, values in peft.get_peft_model_state_dict(model).items():
            if "lora_A" in name:
                self.assertTrue(torch.equal(
                    values, peft.get_peft_model_state_dict(other)[name]))

    def test_an_adapter_that_is_not_active_is_none_of_the_runs(self):
        self.begin_run(adapted())
        model = adapted()
        model.add_adapter("other", peft.LoraConfig(
            r=2, target_modules=["down_proj"], modules_to_save=["lm_head"]))
        run = self.attach(model)
        self.assertEqual({tensor.name for tensor in run.tensors},
                         set(names_of(adapted())))

    def test_two_ranks_go_on_from_a_checkpoint_and_stop_early(self):
        self.begin_run(adapted())
        self.train_two_ranks(code=1, fails=16, save_steps=13)
        end = self.train_two_ranks(resume=self.path("out/checkpoint-13"),
                                   last=8)
        self.assertEqual(end["steps"], list(range(14, 22)))
        self.assert_run_gets(end["checksum"])

    def test_two_ranks_shard_the_model(self):
        self.begin_run(adapted())
        end = self.train_two_ranks(last=8, fsdp="full_shard",
                                   fsdp_config={"version": 2})
        self.assertEqual(end["steps"], list(range(1, 9)))
        self.assert_run_gets(end["checksum"])

    def test_bases_of_16_and_of_4_bits(self):
        self.begin_run(adapted(llama().bfloat16()))
        self.attach(adapted(llama().bfloat16()))
        self.assert_refused(adapted(), "its type and quantization")

    def test_a_quantized_base(self):
        self.begin_run(adapted(self.quantized()))
        self.attach(adapted(self.quantized()))
        other = adapted(self.quantized())
        # A scale of a block of 4-bit values.
        layer = other.get_base_model().model.layers[1].mlp.up_proj
        layer.weight.quant_state.absmax[0] ^= 1
        self.assert_refused(other, "its type and quantization")
        self.assert_refused(adapted(), "its type and quantization")

    def assert_refused(self, model, message):
        with self.assertRaisesRegex(causeway.ModelMismatch, message) as caught:
            self.train(model=model)
        mine, its = re.findall("frozen:sha256:([0-9a-f]{64})",
                               str(caught.exception))
        self.assertNotEqual(mine, its)

    def test_another_base_is_refused_before_it_trains(self):
        self.begin_run(adapted())
        revised = llama()
        revised.lm_head.weight.data[0, 0] += 1e-6
        self.assert_refused(adapted(revised), "checkpoint and revision")
        self.assert_refused(adapted(lora_alpha=16), "lora_alpha")
        with self.assertRaisesRegex(causeway.ModelMismatch,
                                    r"lora_A.weight is \[4, 16\] in the model"):
            self.train(model=adapted(r=4))
        with self.assertRaisesRegex(causeway.ModelMismatch,
                                    "the model has no parameter base_model"):
            self.train(model=llama())

    def test_bases_differ_if_the_configuration_lets_them(self):
        files = self.create_run(adapted(), min_islands=1, fragments=1)
        with open(files.configuration, encoding="utf-8") as file:
            text = file.read()
        for frozen, code in (("frozen:sha256:0", 1), ("frozen:*", 0)):
            with open(files.configuration, "w", encoding="utf-8") as file:
                file.write(re.sub("frozen:sha256:[0-9a-f]{64}", frozen, text))
            done = subprocess.run(
                ["cli/causeway", "validate", files.configuration,
                 "--initial_parameters", files.parameters],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(f'tensors.exclude "{frozen}" matches no tensor' in
                             done.stderr, bool(code))
        self.start_coordinator(files)
        self.attach(adapted(llama().bfloat16()))

    def test_bad_adapters_are_refused(self):
        two = adapted()
        two.add_adapter("other", peft.LoraConfig(target_modules=["q_proj"]))
        two.base_model.set_adapter(["default", "other"])
        adapted().save_pretrained(self.path("adapter"))
        loaded = peft.PeftModel.from_pretrained(llama(), self.path("adapter"))
        more = adapted()
        more.get_base_model().lm_head.weight.requires_grad_()
        prompt = peft.get_peft_model(
            llama(), peft.PromptTuningConfig(num_virtual_tokens=2,
                                             task_type="CAUSAL_LM"))
        tied = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**{**llama().config.to_dict(),
                                        "tie_word_embeddings": True}))
        tied = adapted(tied, modules_to_save=["embed_tokens"],
                       ensure_weight_tying=True)
        for model, message in (
            (two, r"2 active adapters \(default, other\), and a run has one"),
            (loaded, "given is_trainable=True"),
            (more, "trains base_model.model.lm_head.weight, which PEFT does"),
            (prompt, "PEFT saves prompt_embeddings with the adapter, but it"),
            (tied, "PEFT saves one parameter twice"),
            (adapted().to("meta"), "is on the device meta, so it has no val"),
        ):
            with self.subTest(message):
                with self.assertRaisesRegex(causeway.InvalidArgument, message):
                    self.create_run(model)
        self.begin_run(adapted())
        with self.assertRaisesRegex(causeway.InvalidArgument,
                                    "2 active adapters"):
            self.train(model=two)


if __name__ == "__main__":
    unittest.main()
