# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Imports models of Hugging Face's transformers, and exports models to it.

tests/pytorch/integrations.sh runs it by hand, and writes its figures.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import tokenizers
import torch
import transformers
from torch.nn import functional as F

from causeway.creation import RunFiles
from causeway.testing.processes import TERMINATE, ProcessTestCase

sys.path.insert(0, "tests/models")
# pylint: disable=wrong-import-position
import checkpoints

_LENGTH = 32
_SMALL = dict(vocab_size=checkpoints.VOCABULARY, hidden_size=24,
              intermediate_size=40, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=64, pad_token_id=None, bos_token_id=None,
              eos_token_id=None)
_LLAMA3_ROPE = dict(checkpoints.LLAMA3_ROPE, rope_theta=5000.0)
# By name: the configuration of what transformers saves, and the type.
_SAVED = {
    "llama-3.2": (transformers.LlamaConfig(
        **_SMALL, rope_parameters=_LLAMA3_ROPE, tie_word_embeddings=True),
                  torch.bfloat16),
    "mistral": (transformers.MistralConfig(**_SMALL, sliding_window=None),
                torch.bfloat16),
    "qwen2.5": (transformers.Qwen2Config(**_SMALL), torch.float16),
    "qwen3": (transformers.Qwen3Config(**_SMALL, head_dim=8), torch.float32),
    "smollm3": (transformers.SmolLM3Config(**_SMALL, no_rope_layer_interval=2),
                torch.bfloat16),
    "olmo2": (transformers.Olmo2Config(**_SMALL), torch.bfloat16),
}
_TEXT = "several sites train one model, and every site has a part of it"
_REFUSED = {
    "olmo3": transformers.Olmo3Config(**_SMALL),
    "gemma3": transformers.Gemma3TextConfig(**_SMALL, head_dim=8),
    "phi": transformers.PhiConfig(**_SMALL),
}


def make_tokenizer():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.train_from_iterator(
        [_TEXT], tokenizers.trainers.BpeTrainer(
            vocab_size=checkpoints.VOCABULARY, show_progress=False,
            special_tokens=["<s>", "</s>"]))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
        chat_template="{% for m in messages %}<s>{{ m.content }}{% endfor %}")


class TransformersTest(ProcessTestCase):

    figures = {}

    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        self.work = pathlib.Path(self.folder)

    def save(self, name, config, dtype=torch.float32):
        model = transformers.AutoModelForCausalLM.from_config(config)
        model.to(dtype).save_pretrained(self.work / name)
        make_tokenizer().save_pretrained(self.work / name)

    def begin_run(self, name):
        """Makes a run from a checkpoint; returns its state's folder."""
        files = RunFiles(self.path(f"{name}.textproto"), self.path(name))
        self.tool("import", files.parameters, "--out", files.configuration,
                  "--sequence_length", str(_LENGTH), "--total_steps", "40")
        coordinator = self.start_coordinator(files)
        coordinator.signal(TERMINATE)
        self.assert_ends_well(coordinator)
        os.rename(self.path("state"), self.path(f"{name}-state"))
        return self.path(f"{name}-state")

    def export(self, name, dtype):
        """Takes a checkpoint in and out; returns the losses of the run and of
        what transformers loads."""
        state, exported = self.begin_run(name), self.path(f"{name}-exported")
        self.tool("export", state, "--out", exported, "--dtype",
                  {"float32": "fp32", "float16": "fp16"}.get(dtype, "bf16"),
                  "--like", self.path(name))
        evaluated = json.loads(
            self.tool("evaluate", state, "--data", self.path("tokens.bin"),
                      "--threads", "1", "--json"))
        model = transformers.AutoModelForCausalLM.from_pretrained(
            exported, dtype=torch.float64, trust_remote_code=False)
        tokens = torch.frombuffer(
            bytearray((self.work / "tokens.bin").read_bytes()),
            dtype=torch.int16).long()
        windows = torch.stack(
            list(checkpoints.validation_windows(tokens, _LENGTH)))
        with torch.no_grad():
            logits = model(windows[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        return evaluated["loss"], float(loss)

    def test_every_family_goes_out_to_transformers(self):
        checkpoints.make(self.work)
        loaded, worst = [], 0.0
        for name, (config, _) in checkpoints.FAMILIES.items():
            with self.subTest(name):
                ours, theirs = self.export(name, config["torch_dtype"])
                self.assertAlmostEqual(ours, theirs, delta=1e-6)
                loaded.append(name)
                worst = max(worst, abs(ours - theirs))
        self.figures.update(families_loaded_by_transformers=loaded,
                            worst_loss_error=worst)

    def test_what_transformers_saves_comes_back_to_the_byte(self):
        checkpoints.make(self.work)
        for name, (config, dtype) in _SAVED.items():
            with self.subTest(name):
                name = f"saved-{name}"
                self.save(name, config, dtype)
                ours, theirs = self.export(name, str(dtype).split(".")[1])
                self.assertAlmostEqual(ours, theirs, delta=1e-6)
                before, after = (
                    checkpoints.read_model(self.work / folder)
                    for folder in (name, f"{name}-exported"))
                self.assertEqual(before.keys(), after.keys())
                for key, values in before.items():
                    self.assertEqual(values.dtype, after[key].dtype)
                    self.assertTrue(torch.equal(values, after[key]), key)
                self.assert_tokenizer_goes_along(name)

    def assert_tokenizer_goes_along(self, name):
        files = {path.name for path in (self.work / name).iterdir()}
        files -= {"config.json", "model.safetensors"}
        self.assertLessEqual({"tokenizer.json", "tokenizer_config.json",
                              "chat_template.jinja", "generation_config.json"},
                             files)
        for file in files:
            before, after = ((self.work / folder / file).read_bytes()
                             for folder in (name, f"{name}-exported"))
            self.assertEqual(before, after, file)
        before, after = (
            transformers.AutoTokenizer.from_pretrained(self.work / folder)
            for folder in (name, f"{name}-exported"))
        self.assertEqual(before(_TEXT), after(_TEXT))

    def test_other_families_are_refused_with_the_reason(self):
        for name, config in _REFUSED.items():
            with self.subTest(name):
                self.save(name, config)
                done = subprocess.run(
                    ["cli/causeway", "import", self.path(name), "--out",
                     self.path(f"{name}.textproto"), "--sequence_length", "32",
                     "--total_steps", "40"], capture_output=True, text=True,
                    check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(config.model_type, done.stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if os.environ.get("INTEGRATIONS_JSON"):
        callbacks = os.environ["INTEGRATIONS_CALLBACKS"]
        with open(os.environ["INTEGRATIONS_JSON"], "w",
                  encoding="ascii") as file:
            json.dump(dict(
                TransformersTest.figures, torch=torch.__version__,
                callbacks=callbacks.split(",") if callbacks else []), file,
                      indent=2)
    sys.exit(not result.wasSuccessful())
