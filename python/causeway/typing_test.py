# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The package's types, as mypy sees them, and what help() shows."""

import inspect
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Iterator, List, Tuple

import causeway
import causeway.torch

_CALLS = """
import pathlib
import causeway
import torch
model = torch.nn.Linear(1, 1)
files: causeway.RunFiles = causeway.create_run(
    model, "run", name="run", total_steps=1, batch_size=1, sequence_length=1)
with causeway.join("localhost:1", island="east", timeout=None) as island:
    island.attach(model, torch.optim.SGD(model.parameters(), lr=1.0))
    island.report(tokens=1, loss=model(torch.ones(1)))
    island.report(tokens=torch.ones(1).sum())
    island.report(None, loss=1.0)
    island.save(pathlib.Path("state"))
    step: int = island.step
    run: causeway.Run = island.run
    batches: causeway.Sampler = island.sampler([1, 2], 1)
"""
_MISTAKES = """
island.attach(model)
island.report("1")
island.sampler(1.5, 1)
causeway.join(island=3)
causeway.create_run(model, "run")
none: None = island.total_steps
"""
# Reading modules that the package does not use would take most of the time.
_NOT_USED = [
    "sympy", "torch._decomp", "torch._dynamo", "torch._functorch",
    "torch._inductor", "torch._refs", "torch._subclasses", "torch.ao",
    "torch.export", "torch.fx", "torch.onnx", "transformers.models"
]
_CONFIGURATION = f"""
[mypy]
strict = True
[mypy-{','.join(module + '.*' for module in _NOT_USED)}]
follow_imports = skip
"""


def members(package: object) -> Iterator[Tuple[str, object]]:
    """Yields what is public, with the methods and properties of classes."""
    for name in getattr(package, "__all__"):
        member = getattr(package, name)
        yield name, member
        if inspect.isclass(member):
            for key, value in vars(member).items():
                if not key.startswith("_") and (inspect.isfunction(value)
                                                or isinstance(value, property)):
                    yield f"{name}.{key}", value


class TypingTest(unittest.TestCase):

    def check(self, callers: str) -> List[str]:
        """Runs mypy on the package and on such a module; returns what it says.

        Both need most of PyTorch, which takes long to read.
        """
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("mypy.ini", _CONFIGURATION),
                               ("callers.py", callers)):
                with open(os.path.join(folder, name), "w",
                          encoding="utf-8") as file:
                    file.write(text)
            return subprocess.run([
                sys.executable, "-m", "mypy",
                f"--config-file={folder}/mypy.ini", "--no-error-summary",
                f"--cache-dir={folder}/cache", "--package=causeway",
                "--module=callers"
            ], env=dict(os.environ, MYPYPATH=f"python:{folder}"),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False).stdout.splitlines()

    def test_the_package_is_typed_and_callers_are_checked(self) -> None:
        lines = self.check(_CALLS + _MISTAKES)
        # Nothing is wrong with the package.
        self.assertEqual([line for line in lines if "callers.py:" not in line],
                         [])
        first = len(_CALLS.splitlines()) + 2
        wrong = {int(line.split(":")[1]) for line in lines if "error:" in line}
        self.assertEqual(wrong, set(range(first, first + 6)), lines)

    def test_all_that_is_public_is_documented(self) -> None:
        for package in (causeway, causeway.torch):
            for name, member in members(package):
                doc = inspect.getdoc(member)
                # The constructor of a data class stands in for one.
                self.assertTrue(doc and not doc.startswith(f"{name}("), name)


if __name__ == "__main__":
    unittest.main()
