# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the examples as users start them."""

import difflib
import os
import re
import unittest

from causeway.creation import RunFiles
from causeway.testing.processes import ProcessTestCase, free_port

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_TEXT = "/usr/share/common-licenses/GPL-3"


class TrainGptTest(ProcessTestCase):

    def run_script(self, script, *arguments, **environment):
        return self.start_script(os.path.join(_FOLDER, script), *arguments,
                                 **environment)

    def train(self, script, *arguments, ranks=1, **environment):
        """Starts the processes of one training loop."""
        if ranks == 1:
            return [self.run_script(script, "--data", _TEXT, *arguments,
                                    **environment)]
        port = free_port()
        return [
            self.run_script(script, "--data", _TEXT, *arguments,
                            **environment, RANK=rank, WORLD_SIZE=ranks,
                            MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            for rank in range(ranks)
        ]

    def assert_learns(self, process):
        """Asserts that a process learns; returns its loss at the end."""
        self.assert_ends_well(process)
        begin, end = re.findall("validation loss ([0-9.]+)", process.output())
        self.assertLess(float(end), 0.8 * float(begin))
        return end

    def test_the_loop_runs_alone(self):
        for process in self.train("train_gpt.py", "--steps", "20"):
            self.assert_learns(process)

    def test_the_loop_runs_data_parallel(self):
        for process in self.train("train_gpt.py", "--steps", "20", ranks=2):
            self.assert_learns(process)

    def test_two_islands_of_it_train_one_model(self):
        folder = self.path("run")
        self.assert_ends_well(
            self.run_script("create_run.py", "--out", folder,
                            "--steps", "40", "--round", "10"))
        coordinator = self.start_coordinator(
            RunFiles(f"{folder}/run.textproto",
                     f"{folder}/initial.safetensors"))
        processes = [
            process for name, ranks in (("east", 1), ("west", 2))
            for process in self.train(
                "train_gpt_island.py", "--batch", str(8 // ranks),
                ranks=ranks, CAUSEWAY_COORDINATOR=self.address,
                CAUSEWAY_ISLAND=name)
        ]
        losses = [self.assert_learns(process) for process in processes]
        # All end with the merged model, and measure it alike.
        self.assertEqual(losses, [losses[0]] * 3)
        self.assert_ends_well(coordinator)

    def test_fewer_than_15_lines_make_the_loop_an_island(self):
        texts = []
        for name in ("train_gpt.py", "train_gpt_island.py"):
            with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
                texts.append(file.read().splitlines())
        self.assertLess(len(texts[0]), 160)
        new = [line for line in difflib.ndiff(*texts) if line.startswith("+ ")]
        self.assertGreater(len(new), 0)
        self.assertLess(len(new), 15)
        # The README shows them all.
        with open("README.md", encoding="utf-8") as file:
            readme = file.read()
        for line in new:
            self.assertIn("+" + line[2:], readme)


if __name__ == "__main__":
    unittest.main()
