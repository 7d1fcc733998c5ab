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
# pylint: disable=wrong-import-position
from llama_module import Llama, windows_of

_TEXT = "/usr/share/common-licenses/GPL-3"
_LENGTH, _BATCH = 32, 4
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


class MixedRunTest(ProcessTestCase):

    def begin(self):
        path = self.path("run.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_CONFIG)
        return self.start_coordinator(causeway.RunFiles(path, ""))

    def test_a_pytorch_and_a_native_island_train_one_model(self):
        coordinator = self.begin()
        native = self.start("native", [
            "worker/causeway-worker", f"--coordinator={self.address}",
            "--island=native", f"--data={_TEXT}", "--threads=1"
        ])
        windows = windows_of(_TEXT, _LENGTH)
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
