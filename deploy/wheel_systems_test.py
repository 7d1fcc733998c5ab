# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the wheel on systems other than the one that it was made on.

    bazel run //deploy:wheel_systems_test

Not part of every test run, because it needs root, debootstrap, Debian's archive
and PyPI. Keeps the systems in ~/.cache/causeway. Takes the Pythons in PATH.
"""

import glob
import os
import shutil
import subprocess
import sys
import unittest

import numpy

from causeway.testing.processes import ProcessTestCase

_CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}
# Debian 11 has an older glibc than the wheel needs.
_TOO_OLD, _SUITES = "bullseye", ("bookworm", "trixie")
_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")

# An island without PyTorch, which some of these systems do not have.
_TRAIN = """
import platform, sys, numpy, causeway
from causeway._library import library_path
from island import Island
weight = numpy.zeros((4, 6), numpy.float32)
island = Island(library_path(), sys.argv[1], "east", {"weight": weight})
while not island.step.finished:
    weight += 0.2 * (1 - weight)
    island.after_step(32, float(1 - weight.mean()))
island.close()
assert numpy.allclose(weight, 1, atol=0.02), weight
assert not {"torch", "transformers"} & set(sys.modules)
print("Python", platform.python_version(), "glibc", platform.libc_ver()[1])
"""


def make_system(suite):
    """Returns the root of a Debian with Python."""
    root = os.path.expanduser(f"~/.cache/causeway/{suite}")
    if not os.path.exists(root):
        subprocess.run(["debootstrap", "--variant=minbase",
                        "--include=python3-venv,python3-numpy", suite,
                        f"{root}.new"], check=True)
        os.rename(f"{root}.new", root)
    return root


class WheelSystemsTest(ProcessTestCase):

    def setUp(self):
        super().setUp()
        subprocess.run([os.path.abspath("deploy/wheel.sh"), "--library",
                        os.path.abspath("worker/embedding/libcauseway.so"),
                        self.folder], env=_CLEAN, check=True)
        (self.wheel,) = glob.glob(self.path("*.whl"))

    def copy_to(self, folder):
        """Copies the wheel and the island to a folder."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        shutil.copy(self.wheel, folder)
        shutil.copy("examples/jax/island.py", folder)
        with open(f"{folder}/train.py", "w", encoding="ascii") as file:
            file.write(_TRAIN)

    def install(self, python, folder, within=()):
        """Installs the wheel in a new environment; returns what pip says."""
        subprocess.run([*within, python, "-m", "venv", "--system-site-packages",
                        f"{folder}/venv"], env=_CLEAN, check=True)
        return subprocess.run(
            [*within, f"{folder}/venv/bin/pip", "install", "--no-index",
             f"{folder}/{os.path.basename(self.wheel)}"], env=_CLEAN,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)

    def train(self, folder, within=()):
        shutil.rmtree(self.path("state"), ignore_errors=True)
        self.port = 0
        coordinator = self.start_coordinator(self.create_run(
            {"weight": numpy.zeros((4, 6), numpy.float32)}, fragments=1,
            min_islands=1, total_steps=40))
        island = self.start("island", [
            *within, "env", "-i", f"{folder}/venv/bin/python",
            f"{folder}/train.py", self.address])
        self.assert_ends_well(island)
        self.assert_ends_well(coordinator)
        print(*within, island.output())

    def test_auditwheel_finds_the_same_tag(self):
        audit = self.path("audit")
        subprocess.run([sys.executable, "-m", "venv", audit], check=True)
        subprocess.run([f"{audit}/bin/pip", "install", "-q", "auditwheel"],
                       check=True)
        said = subprocess.run([f"{audit}/bin/auditwheel", "show", self.wheel],
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertIn('platform tag: "manylinux_2_34_x86_64"',
                      " ".join(said.stdout.split()))

    def test_debian(self):
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            self.skipTest("needs root and debootstrap")
        for suite in (_TOO_OLD, *_SUITES):
            with self.subTest(suite):
                root = make_system(suite)
                self.copy_to(f"{root}/causeway")
                within = ("chroot", root)
                said = self.install("/usr/bin/python3", "/causeway", within)
                if suite == _TOO_OLD:
                    self.assertIn("manylinux_2_34_x86_64.whl is not a supported"
                                  " wheel on this platform", said.stdout)
                    continue
                self.assertEqual(said.returncode, 0, said.stdout)
                self.train("/causeway", within)

    def test_python(self):
        for version in _PYTHONS:
            with self.subTest(version):
                python = shutil.which(f"python{version}")
                if not python or subprocess.run([python, "-V"],
                                                check=False).returncode:
                    self.skipTest(f"there is no python{version}")
                folder = self.path(version)
                self.copy_to(folder)
                said = self.install(python, folder)
                self.assertEqual(said.returncode, 0, said.stdout)
                subprocess.run([f"{folder}/venv/bin/pip", "install", "-q",
                                "numpy"], check=True)
                self.train(folder)


if __name__ == "__main__":
    unittest.main()
