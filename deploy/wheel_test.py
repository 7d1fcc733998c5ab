# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the wheel in an environment with nothing else of Causeway."""

import glob
import os
import subprocess
import sys
import unittest

from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import ProcessTestCase

_CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}

_IMPORT = """
import importlib.metadata, importlib.resources, sys, causeway
assert not {"torch", "transformers", "lightning", "peft"} & set(sys.modules)
assert causeway.__file__.startswith(sys.prefix), causeway.__file__
assert causeway.__version__ == importlib.metadata.version("causeway")
files = importlib.resources.files(causeway)
assert (files / "py.typed").is_file()
metadata = importlib.metadata.metadata("causeway")
assert metadata.get_payload().strip() == causeway.__doc__.strip(), metadata
assert "Typing :: Typed" in metadata.get_all("Classifier"), metadata
header = (files / "include" / "causeway.h").read_text()
assert "causeway_open" in header
for package in "libgrpc29", "nlohmann-json3-dev", "cudnn-frontend":
    notice = (files / "licenses" / package / "copyright").read_text()
    assert "copyright" in notice.lower(), package
"""

_TRAIN = """
import sys, causeway, torch
model = torch.nn.ModuleDict({
    "layers": torch.nn.ModuleList(torch.nn.Linear(6, 4) for _ in range(2)),
    "head": torch.nn.Linear(6, 10, bias=False)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with causeway.join(sys.argv[1], island="east") as island:
    island.attach(model, optimizer)
    while not island.should_stop:
        optimizer.step()
"""


class WheelTest(ProcessTestCase):

    def run_clean(self, *command):
        done = subprocess.run(command, env=_CLEAN, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_is_all_that_an_island_needs_beside_pytorch(self):
        self.run_clean(os.path.abspath("deploy/wheel.sh"), "--library",
                       os.path.abspath("worker/embedding/libcauseway.so"),
                       self.folder)
        (wheel,) = glob.glob(
            self.path("causeway-*-py3-none-manylinux_2_34_x86_64.whl"))
        venv = self.path("venv")
        self.run_clean(sys.executable, "-m", "venv", "--system-site-packages",
                       venv)
        self.run_clean(f"{venv}/bin/pip", "install", "--no-index", wheel)
        python = f"{venv}/bin/python"
        self.run_clean(python, "-c", _IMPORT)
        coordinator = self.start_coordinator(
            self.create_run(LeastSquares(), min_islands=1, total_steps=20))
        self.run_clean(python, "-c", _TRAIN, self.address)
        self.assert_ends_well(coordinator)


if __name__ == "__main__":
    unittest.main()
