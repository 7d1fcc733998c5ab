# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that the scripts of this folder make the golden values."""

import pathlib
import unittest

import torch

import make_adamw_golden
import make_llama_golden
import make_muon_golden
from tensor_file import read_tensors


class GoldenTest(unittest.TestCase):

    def expect_file(self, name, script):
        tensors, metadata = read_tensors(
            pathlib.Path(__file__).with_name(name + "_golden.safetensors"))
        want_tensors, want_metadata = script.golden()
        self.assertEqual(metadata, want_metadata)
        self.assertEqual(list(tensors), list(want_tensors))
        for tensor, want in want_tensors.items():
            # Libraries of linear algebra differ in the last digits.
            torch.testing.assert_close(tensors[tensor], want, rtol=1e-9,
                                       atol=1e-12, msg=tensor)

    def test_adamw(self):
        self.expect_file("adamw", make_adamw_golden)

    def test_muon(self):
        self.expect_file("muon", make_muon_golden)

    def test_llama(self):
        self.expect_file("llama", make_llama_golden)


if __name__ == "__main__":
    unittest.main()
