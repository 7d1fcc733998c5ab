# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests runs of trainable tensors; tests/pytorch/lora_test.py tests PEFT's."""

import os
import unittest

import torch

import causeway
from causeway.adapters import check_frozen, frozen_digest
from causeway.joined_run import FROZEN, Run
from causeway.testing.processes import ProcessTestCase


def model():
    """Returns a frozen base with a trainable head."""
    torch.manual_seed(1)
    base = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3),
                               torch.nn.Linear(3, 2))
    base[0].requires_grad_(False)
    base[1].requires_grad_(False)
    return base


def digest(module, exchanged=(), excluded=()):
    return frozen_digest(module, set(exchanged), lambda name: name in excluded)


class AdaptersTest(ProcessTestCase):

    def create_run(self, module, **fields):
        return causeway.create_run(module, self.path("run"), name="test",
                                   total_steps=10, batch_size=4,
                                   sequence_length=1, trainable_only=True,
                                   **fields)

    def test_equal_bases_have_one_digest_and_others_have_others(self):
        expected = digest(model())
        self.assertRegex(expected, f"^{FROZEN}[0-9a-f]{{64}}$")
        self.assertEqual(digest(torch.nn.DataParallel(model())), expected)

        def changed(change):
            module = model()
            change(module)
            return digest(module)

        def one_bit(module):
            module[0].weight.view(-1).view(torch.int32)[5] ^= 1

        def other_type(module):
            module[0].bfloat16()

        def other_shape(module):
            module[0].weight.data = module[0].weight.data.view(4, 3)

        def other_buffer(module):
            module[1].running_mean[1] = 1

        def other_name(module):
            module[0].register_buffer("scales", module[0].bias.data)
            module[0].bias = None

        def trained(module):
            module[2].weight.data.zero_()

        digests = {changed(change) for change in (
            one_bit, other_type, other_shape, other_buffer, other_name)}
        self.assertEqual(len(digests - {expected}), 5)
        self.assertEqual(changed(trained), expected)

    def test_what_is_exchanged_or_excluded_is_not_compared(self):
        whole = digest(model())
        module = model()
        without = digest(module, [id(module[0].bias)])
        self.assertNotEqual(without, whole)
        module[0].bias.data.zero_()
        self.assertEqual(digest(module, [id(module[0].bias)]), without)
        self.assertEqual(digest(module, (), ["0.bias"]), without)

    def test_values_do_not_depend_on_how_they_lie_in_memory(self):
        module, other = model(), model()
        other[0].weight.data = other[0].weight.data.t().contiguous().t()
        self.assertFalse(other[0].weight.is_contiguous())
        self.assertEqual(digest(other), digest(module))

    def test_the_files_of_a_run_have_it_and_what_is_trainable(self):
        files = self.create_run(model(), exclude=["0.bias"])
        with open(files.configuration, encoding="utf-8") as file:
            text = file.read()
        name = digest(model(), (), ["0.bias"])
        self.assertIn(f'exclude: "0.bias"\n  exclude: "{name}"', text)
        with open(files.parameters, "rb") as file:
            content = file.read()
        for expected in (b'"2.weight"', b'"2.bias"', name.encode()):
            self.assertIn(expected, content)
        self.assertNotIn(b'"0.weight"', content)
        self.assertLess(len(content), 512)

    def test_an_island_compares(self):

        def run(*excluded):
            return Run("id", "test", "east", 0, 1, 0, 0, 1, 1, 1, 1, 1, (),
                       {"tensors": {"exclude": list(excluded)}})

        check_frozen(model(), run(digest(model())), set())
        with self.assertLogs("causeway", "WARNING") as logs:
            # Somebody has removed the run's digest.
            check_frozen(model(), run("frozen:*"), set())
            check_frozen(model(), run("0.*", "1.*"), set())
            exchanged = model()
            check_frozen(exchanged, run(), set(map(id, exchanged.parameters())))
            check_frozen(model(), run("1.*"), set())
        self.assertEqual(len(logs.output), 1)
        self.assertIn("2 frozen parameters (such as 0.weight) are not compared",
                      logs.output[0])
        other = model()
        other[1].running_mean += 1
        with self.assertRaisesRegex(
                causeway.ModelMismatch,
                f"of run test: its digest is {digest(other)}, the run's "
                f"{digest(model())}. Compare the base model's checkpoint.*"
                "Buffers that training changes.*in exclude, such as "
                r"'\*.running_mean'"):
            check_frozen(other, run("*.mask", digest(model())), set())

    def test_bad_models_are_refused_before_a_file_is_written(self):
        frozen = model().requires_grad_(False)
        for module, message in (
            ({"weight": torch.ones(2)}, "trainable_only takes a torch.nn"),
            (frozen, "no parameter of the model requires gradients"),
            (model().to("meta"), "0.bias is on the device meta, so it has no"),
            (torch.nn.Linear(2, 2, device="meta"),
             "weight is on the device meta, so it has no values to begin"),
        ):
            with self.subTest(message):
                with self.assertRaisesRegex(causeway.InvalidArgument, message):
                    self.create_run(module)
                self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
