# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A native island and one of PyTorch train one model."""

import json
import math
import sys
import unittest

import torch

import causeway
from causeway.testing.processes import ProcessTestCase

sys.path.insert(0, "tests/reference")
import llama  # pylint: disable=wrong-import-position

_TEXT = "/usr/share/common-licenses/GPL-3"
_LENGTH, _BATCH = 32, 4
_MODEL = {"layers": 2, "hidden_size": 32, "intermediate_size": 64, "heads": 2}
_CONFIG = """
name: "mixed"
model {
  layers: 2 hidden_size: 32 intermediate_size: 64 heads: 2 sequence_length: 32
}
training {
  total_steps: 100 batch_size: 4 learning_rate: 3e-3 warmup_steps: 5
}
synchronization { inner_steps_per_round: 10 fragments: 2 overlap_steps: 2 }
membership { min_islands: 2 max_islands: 2 lease_seconds: 5 }
"""


class Llama(torch.nn.Module):
    """The Llama of tests/reference, with parameters of a run's names."""

    def __init__(self, run):
        super().__init__()
        for tensor in run.tensors:
            *path, name = tensor.name.split(".")
            module = self
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            module.register_parameter(
                name, torch.nn.Parameter(torch.zeros(tensor.shape)))
        model = run.configuration["model"]
        self._config = {
            **_MODEL, "kv_heads": model["kv_heads"],
            "rope_theta": model.get("rope_theta", 10000),
            "norm_epsilon": model.get("norm_epsilon", 1e-5)
        }

    def forward(self, windows):
        logits = llama.logits_of(windows[:, :-1],
                                 dict(self.named_parameters()), self._config)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                                 windows[:, 1:].flatten())


class MixedRunTest(ProcessTestCase):

    def begin(self):
        path = self.path("run.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_CONFIG)
        return self.start_coordinator(causeway.RunFiles(path, ""))

    def windows(self):
        with open(_TEXT, "rb") as file:
            text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        return text.unfold(0, _LENGTH + 1, _LENGTH).long()

    def test_a_pytorch_and_a_native_island_train_one_model(self):
        coordinator = self.begin()
        native = self.start("native", [
            "worker/causeway-worker", f"--coordinator={self.address}",
            "--island=native", f"--data={_TEXT}", "--threads=1"
        ])
        windows = self.windows()
        with causeway.join(self.address, island="pytorch",
                           timeout=60) as island:
            model = Llama(island.run)
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
            island.attach(model, optimizer)
            for batch in island.sampler(windows, batch_size=_BATCH):
                optimizer.zero_grad()
                loss = model(windows[batch])
                loss.backward()
                island.report(tokens=_BATCH * _LENGTH, loss=loss)
                optimizer.step()
            self.assertTrue(island.should_stop)
            with torch.no_grad():
                own = float(model(windows))
        self.assert_ends_well(native)
        self.assert_ends_well(coordinator)
        evaluated = json.loads(
            self.tool("evaluate", self.path("state"), "--data", _TEXT,
                      "--json"))
        self.assertLess(evaluated["loss"], 0.75 * math.log(258))
        # The island ends with the merged model. The tool measures only what is
        # held out.
        self.assertAlmostEqual(evaluated["loss"], own, delta=0.2)


if __name__ == "__main__":
    unittest.main()
