# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

import torch

from causeway import _library
from causeway.attachment import Attachment, StepHook
from causeway.errors import ModelMismatch, TensorMoved, Unimplemented
from causeway.testing.least_squares import LeastSquares, run_of
from causeway.trained import Trained


class AttachmentTest(unittest.TestCase):

    def check_in_turn(self, attachment):
        for _ in range(len(attachment.locals)):
            attachment.check_one(mock.Mock())

    def test_describes_tensors_where_they_are(self):
        model = LeastSquares().to(torch.bfloat16)
        buffers = Attachment(model, run_of()).buffers()
        self.assertEqual(buffers[4].name, b"head.weight")
        self.assertEqual(buffers[4].shape[:buffers[4].dimensions], [10, 6])
        self.assertEqual(buffers[4].data, model.head.weight.data_ptr())
        self.assertEqual(buffers[4].dtype, _library.BFLOAT16)
        self.assertEqual((buffers[4].first, buffers[4].count), (0, 0))

    def test_describes_parts_of_tensors(self):
        model = LeastSquares()
        part = torch.zeros(12)
        shards = {"head.weight": (18, part), "layers.0.bias": (4, part[:0])}
        buffers = Attachment(model, run_of(), shards).buffers()
        self.assertEqual((buffers[4].first, buffers[4].count), (18, 12))
        self.assertEqual(buffers[4].data, part.data_ptr())
        self.assertEqual((buffers[1].first, buffers[1].count), (4, 0))

    def test_refuses_types_and_places_that_no_run_has(self):
        for change, message in (
            (lambda m: m.double(), "layers.0.weight is of type torch.float64"),
            (lambda m: m.to("meta"), "layers.0.weight is on the device meta")):
            with self.assertRaisesRegex(ModelMismatch, message):
                Attachment(change(LeastSquares()), run_of())
        model = LeastSquares()
        model.head.weight.data = torch.zeros(6, 10).t()
        with self.assertRaisesRegex(ModelMismatch,
                                    "head.weight is not contiguous"):
            Attachment(model, run_of())

    def test_notices_memory_that_was_replaced(self):
        for replace in (
            lambda m: setattr(m.head.weight, "data", torch.zeros(10, 6)),
            lambda m: setattr(m.head, "weight",
                              torch.nn.Parameter(torch.zeros(10, 6))),
            lambda m: m.head.to(torch.bfloat16),
            lambda m: m.head.share_memory()):
            model = LeastSquares()
            attachment = Attachment(model, run_of())
            native = mock.Mock()
            attachment.follow(native)
            native.fail.assert_not_called()
            replace(model)
            with self.assertRaisesRegex(TensorMoved, "memory of head.weight"):
                attachment.follow(native)
            native.fail.assert_called_once()

    def test_a_model_may_move_when_the_island_leaves(self):
        for is_safe, move in (
            (True, lambda m: setattr(m.head.weight, "data",
                                     m.head.weight.data.clone())),
            (False, lambda m: setattr(m.head.weight, "data",
                                      m.head.weight.data + 1)),
            (False, lambda m: m.head.to(torch.bfloat16)),
            (False, lambda m: m.head.share_memory())):
            model = LeastSquares()
            attachment = Attachment(model, run_of())
            move(model)
            if is_safe:
                attachment.follow(mock.Mock(), leaves=True)
            else:
                with self.assertRaises(TensorMoved):
                    attachment.follow(mock.Mock(), leaves=True)

    def test_a_shard_may_move_when_the_island_leaves(self):
        weight, local = LeastSquares().head.weight, torch.ones(4, 6)
        model = torch.nn.ParameterDict({"w": weight})
        weight.placements, weight.device_mesh = [_Shard(0)], _Mesh([3], [0])
        weight.to_local, weight._local_tensor = lambda: local, local
        attachment = Attachment(model, run_of({"w": (10, 6)}))
        weight._local_tensor = local.clone()
        attachment.follow(mock.Mock(), leaves=True)
        weight._local_tensor = local + 1
        with self.assertRaises(TensorMoved):
            attachment.follow(mock.Mock(), leaves=True)

    def test_looks_at_every_parameter_in_turn(self):
        model = torch.nn.ParameterDict(
            {f"p{i:02}": torch.nn.Parameter(torch.zeros(1)) for i in range(40)})
        run = run_of({name: (1,) for name in model.keys()})
        for i in range(40):
            for check in (self.check_in_turn,
                          lambda made: made.check_all(mock.Mock())):
                attachment = Attachment(model, run)
                model[f"p{i:02}"].data = torch.zeros(1)
                with self.assertRaises(TensorMoved):
                    check(attachment)

    def test_autograd_notices_new_values(self):
        model = LeastSquares()
        loss = model.head(torch.ones(6, requires_grad=True)).sum()
        Attachment(model, run_of()).values_changed()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace"):
            loss.backward()

    def test_a_sharded_tensor_is_known_by_its_placement(self):
        for rank, ranks, begin, rows in ((0, 3, 0, 4), (2, 3, 8, 2),
                                         (3, 4, 9, 1), (6, 7, 10, 0)):
            model = LeastSquares()
            model.head.weight.placements = [_Shard(None), _Shard(0)]
            model.head.weight.device_mesh = _Mesh([5, ranks], [3, rank])
            local = torch.zeros(rows, 6)
            model.head.weight.to_local = lambda: local
            buffer = Attachment(model, run_of()).buffers()[4]
            self.assertEqual((buffer.first, buffer.count),
                             (6 * begin, 6 * rows))
        model.head.weight.placements = [_Shard(1)]
        with self.assertRaisesRegex(Unimplemented, "head.weight is placed"):
            Attachment(model, run_of())

    def test_refuses_a_part_that_is_not_contiguous(self):
        for dimension in (None, 0):
            model = LeastSquares()
            model.head.weight.placements = [_Shard(dimension)]
            model.head.weight.device_mesh = _Mesh([1], [0])
            model.head.weight.to_local = lambda: torch.zeros(6, 10).t()
            with self.assertRaisesRegex(ModelMismatch,
                                        "head.weight is not contiguous"):
                Attachment(model, run_of())


class _Shard:

    def __init__(self, dimension):
        self._dimension = dimension

    def is_replicate(self):
        return self._dimension is None

    def is_shard(self, dimension):
        return dimension == self._dimension


class _Mesh:

    def __init__(self, size, rank):
        self._size, self._rank = size, rank

    def size(self, dimension):
        return self._size[dimension]

    def get_local_rank(self, dimension):
        return self._rank[dimension]


class StepHookTest(unittest.TestCase):

    def setUp(self):
        self.model = LeastSquares()
        self.calls = 0

    def count(self):
        self.calls += 1

    def test_is_called_after_each_step_until_it_is_removed(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        hook = StepHook(optimizer, self.count)
        optimizer.step()
        optimizer.step(lambda: 1.0)
        self.assertEqual(self.calls, 2)
        self.assertEqual(hook.learning_rate(), 0.5)
        hook.remove()
        optimizer.step()
        self.assertEqual(self.calls, 2)

    def test_goes_with_schedulers_made_before_and_after(self):
        for before in (False, True):
            self.calls = 0
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
            make = lambda: torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda _: 1)
            if before:
                scheduler = make()
            StepHook(optimizer, self.count)
            if not before:
                scheduler = make()
            with self.assertNoLogs() if hasattr(
                    self, "assertNoLogs") else self.subTest():
                optimizer.step()
                scheduler.step()
            self.assertEqual(self.calls, 1)

    def test_a_step_that_was_skipped_is_known(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        hook = StepHook(optimizer, self.count)
        self.assertFalse(hook.skipped())
        optimizer.found_inf = torch.tensor(1.0)
        self.assertTrue(hook.skipped())

    def test_a_rate_in_host_memory_is_known(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        hook = StepHook(optimizer, self.count)
        for rate, known in ((torch.tensor(0.25), 0.25),
                            (torch.tensor(0.25, device="meta"), 0)):
            optimizer.param_groups[0]["lr"] = rate
            self.assertEqual(hook.learning_rate(), known)

    def test_an_optimizer_of_another_model_is_refused(self):
        other = torch.optim.SGD(LeastSquares().parameters(), lr=0.5)
        own = torch.optim.SGD(self.model.parameters(), lr=0.5)
        attachment = Attachment(self.model, run_of())
        Trained([other, own], attachment, self.model, run_of())
        with self.assertRaisesRegex(ModelMismatch, "trains no parameter"):
            Trained([other], attachment, self.model, run_of())

    def test_the_step_is_not_made_if_what_comes_before_it_fails(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.model(0).backward()
        before = self.model.head.weight.detach().clone()

        def fail():
            raise ValueError

        StepHook(optimizer, self.count, fail)
        with self.assertRaises(ValueError):
            optimizer.step()
        self.assertEqual(self.calls, 0)
        self.assertTrue(torch.equal(before, self.model.head.weight))


class TrainedTest(unittest.TestCase):

    def begin(self, exclude=()):
        self.model = LeastSquares()
        self.model.more = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(1), requires_grad=False)
            for _ in range(40))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        run = run_of(exclude=exclude)
        return Trained([self.optimizer], Attachment(self.model, run),
                       self.model, run)

    def test_a_parameter_that_is_no_longer_frozen_is_noticed(self):
        for number in (0, 39):
            trained = self.begin()
            trained.check()
            self.model.more[number].requires_grad_(True)
            with self.assertRaisesRegex(ModelMismatch,
                                        f"more.{number} is no longer frozen"):
                for _ in range(40):
                    trained.check()

    def test_what_the_run_excludes_may_be_added_and_trained(self):
        trained = self.begin(exclude=["more.*", "extra.*"])
        self.model.more[3].requires_grad_(True)
        self.model.extra = torch.nn.Linear(2, 2)
        self.optimizer.add_param_group(
            {"params": self.model.extra.parameters()})
        for _ in range(40):
            trained.check()
        self.optimizer.add_param_group({"params": torch.zeros(3)})
        with self.assertRaisesRegex(ModelMismatch,
                                    r"a parameter of shape \[3\] was added"):
            trained.check()


if __name__ == "__main__":
    unittest.main()
