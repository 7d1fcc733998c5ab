# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
import io
import json
import math
import re
import struct
import unittest

import numpy
import torch

import causeway
from causeway.creation import write_safetensors
from causeway.errors import InvalidArgument
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import ProcessTestCase


class SafetensorsTest(unittest.TestCase):

    def test_has_the_bytes_of_the_format(self):
        tensors = {
            "half": torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
            "full": torch.tensor([[1.5], [2.5]]),
        }
        file = io.BytesIO()
        write_safetensors(file, tensors)
        data = file.getvalue()
        (length,) = struct.unpack("<Q", data[:8])
        self.assertEqual((8 + length) % 64, 0)
        header = json.loads(data[8:8 + length])
        self.assertEqual(header["full"], {
            "dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]})
        self.assertEqual(header["half"], {
            "dtype": "BF16", "shape": [2], "data_offsets": [8, 12]})
        self.assertEqual(data[8 + length:],
                         struct.pack("<ff", 1.5, 2.5) + b"\x80\x3f\x00\xc0")


    def test_takes_arrays(self):
        values = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
        files = []
        # One array is not contiguous.
        for tensors in ({"a": values, "b": values.T.astype(numpy.float16)},
                        {"a": torch.tensor(values),
                         "b": torch.tensor(values.T).half()}):
            file = io.BytesIO()
            write_safetensors(file, tensors)
            files.append(file.getvalue())
        self.assertEqual(files[0], files[1])


class CreateRunTest(ProcessTestCase):

    def validate(self, model, **fields):
        files = self.create_run(model, **fields)
        return self.tool("validate", files.configuration,
                         "--initial_parameters", files.parameters)

    def test_the_coordinator_takes_what_is_written(self):
        # 2 * (24 + 4) + 60 values.
        plan = self.validate(LeastSquares(tied=True), exclude=["head.*"],
                             mean_only=["layers.1.weight"], fragments=2,
                             block=["layers.#."], format="INT4", shards=7)
        self.assertIn("in 2 blocks", plan)
        self.assertIn("56", plan)
        self.assertIn("116", self.validate(LeastSquares(tied=True)))

    def test_names_and_patterns_may_look_like_enums(self):
        tensors = {"W1": torch.zeros(3), "B1": torch.zeros(2)}
        plan = self.validate(tensors, exclude="B1", fragments=1)
        self.assertIn(" 3 parameters", plan)

    def configuration(self, **fields):
        files = causeway.create_run(
            LeastSquares(), self.path("defaults"), name="test",
            total_steps=100, batch_size=4, sequence_length=8, **fields)
        with open(files.configuration, encoding="utf-8") as file:
            return file.read()

    def test_the_defaults_of_the_outer_step_are_those_of_a_configuration(self):
        text = self.configuration()
        with open("proto/run_config.proto", encoding="utf-8") as file:
            proto = file.read().partition("message OuterOptimizerConfig")[2]
        defaults = dict(re.findall(r" (\w+) = \d+ \[default = (.*)\];", proto))
        values = re.findall(r"  (learning_rate|momentum): (.*)\n", text)
        self.assertEqual(len(values), 2)
        for name, value in values:
            self.assertEqual(float(value), float(defaults[name]), name)
        # A RunConfig's own defaults differ: MEAN, 10 and INT4.
        for field in ("merge: RADIAL_DIRECTIONAL", "inner_steps_per_round: 5",
                      "uplink_format: ECQ", "downlink_format: ECQ",
                      "ecq_bits: 1.8", "error_feedback: 1",
                      "update_history: 100"):
            self.assertIn(f"  {field}\n", text)

    def test_long_rounds_have_a_finer_format(self):
        text = self.configuration(inner_steps_per_round=11)
        self.assertIn("  uplink_format: INT4\n", text)
        self.assertIn("  update_history: 45\n", text)
        self.assertNotIn("ecq_bits", text)

    def test_frozen_parameters_are_left_out(self):
        model = LeastSquares()
        model.head.weight.requires_grad_(False)
        self.assertIn("56", self.validate(model, fragments=2))

    def test_what_no_island_exchanges_may_be_excluded(self):
        model = LeastSquares()
        model.head.weight.requires_grad_(False)
        for exclude in (["head.*"], ["mask"], ["head.*", "m*", "*.1.bias"]):
            self.assertIn("52" if len(exclude) > 1 else "56",
                          self.validate(model, exclude=exclude, fragments=2))
        with self.assertRaisesRegex(InvalidArgument, "exclude \"hat\" match"):
            self.create_run(model, exclude=["mask", "hat"])
        model.head.double()
        for requires, only in ((False, True), (True, True), (True, False)):
            model.head.weight.requires_grad_(requires)
            self.assertIn("56", self.validate(model, exclude=["head.*"],
                                              fragments=2, trainable_only=only))

    def test_bf16_models_may_begin_as_fp32(self):
        model = LeastSquares().to(torch.bfloat16)
        for dtype in (None, torch.float32):
            self.assertIn("116", self.validate(model, dtype=dtype))

    def test_refuses_what_no_run_has(self):
        with self.assertRaisesRegex(InvalidArgument, "layers.0.weight is of"):
            self.create_run(LeastSquares().double())
        with self.assertRaisesRegex(InvalidArgument, "is of type .*float64"):
            self.create_run(LeastSquares(), dtype=torch.float64)
        with self.assertRaisesRegex(InvalidArgument, "dtype is 'bfloat16'; it"):
            self.create_run(LeastSquares(), dtype="bfloat16")
        with self.assertRaisesRegex(InvalidArgument, "dtype .* a is of .*nda"):
            self.create_run({"a": numpy.zeros(3, numpy.float32)},
                            dtype=torch.bfloat16)
        with self.assertRaisesRegex(InvalidArgument, "no parameter"):
            self.create_run(torch.nn.ReLU())
        sharded = torch.zeros(2)
        sharded.to_local = lambda: None
        with self.assertRaisesRegex(InvalidArgument, "a is sharded"):
            self.create_run({"a": sharded})
        with self.assertRaisesRegex(InvalidArgument, "the model is of type li"):
            self.create_run([LeastSquares()])
        with self.assertRaisesRegex(InvalidArgument, ":12:16: Expected integ"):
            self.create_run(LeastSquares(), total_steps=1e4)
        with self.assertRaisesRegex(InvalidArgument, "exclude \"w\" matches"):
            self.create_run(LeastSquares(), exclude="w")
        with self.assertRaisesRegex(InvalidArgument, "\"a\" has a value"):
            self.create_run({"a": torch.full((3,), math.nan)}, fragments=1)


if __name__ == "__main__":
    unittest.main()
