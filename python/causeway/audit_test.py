# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The gradients that ranks compare."""

import types
import unittest
import unittest.mock
import warnings

import torch

from causeway.audit import audited
from causeway.errors import InvalidArgument, Unimplemented


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8),
                               torch.nn.Dropout(), torch.nn.Linear(8, 1))


def loss(module, batch):
    return module(batch).square().mean()


def attached(module, whole=True):
    """Returns what an audit uses of an Attachment."""
    return types.SimpleNamespace(model=module, locals=[
        types.SimpleNamespace(whole=whole, slot=types.SimpleNamespace(
            parameter=parameter, names=[name]))
        for name, parameter in module.named_parameters()])


BATCH = torch.arange(12.0).reshape(3, 4)


class AuditTest(unittest.TestCase):

    def test_ranks_with_equal_parameters_have_equal_digests(self):
        first, second = model(), model()
        # Ranks that train on other samples differ in this.
        torch.manual_seed(2)
        loss(second, BATCH + 1).backward()
        self.assertEqual(audited(attached(first), loss, BATCH),
                         audited(attached(second), loss, BATCH))

    def test_a_wrong_bit_changes_a_digest(self):
        right = audited(attached(model()), loss, BATCH)
        wrong = audited(attached(model()), lambda *arguments: (1 + 2**-22) *
                        loss(*arguments), BATCH)
        self.assertEqual(wrong[0], right[0])
        self.assertNotEqual(wrong[1], right[1])
        other = model()
        with torch.no_grad():
            other[0].bias[0] += 1e-3
        self.assertNotEqual(audited(attached(other), loss, BATCH)[0], right[0])

    def test_leaves_devices_alone_that_have_no_parameters(self):
        # This process sees GPUs, but does not use them.
        with unittest.mock.patch("torch.cuda.device_count", lambda: 2), (
                warnings.catch_warnings()):
            warnings.simplefilter("error")
            audited(attached(model()), loss, BATCH)

    def test_changes_nothing(self):
        module = model()
        loss(module, BATCH).backward()
        before = [tensor.clone() for tensor in (
            *module.state_dict().values(),
            *(parameter.grad for parameter in module.parameters()),
            torch.get_rng_state())]
        audited(attached(module), loss, BATCH + 1)
        after = (*module.state_dict().values(),
                 *(parameter.grad for parameter in module.parameters()),
                 torch.get_rng_state())
        for one, other in zip(before, after):
            self.assertTrue(torch.equal(one, other))

    def test_frozen_parameters_are_left_out(self):
        module = model()
        module[0].requires_grad_(False)
        audited(attached(module), loss, BATCH)

    def test_refuses_parts_of_parameters(self):
        with self.assertRaisesRegex(Unimplemented, "parts of 0.weight"):
            audited(attached(model(), whole=False), loss, BATCH)

    def test_refuses_the_loss_of_another_model(self):
        with self.assertRaisesRegex(InvalidArgument, "no parameter of the run"):
            audited(attached(model()), lambda _, batch: loss(model(), batch),
                    BATCH)


if __name__ == "__main__":
    unittest.main()
