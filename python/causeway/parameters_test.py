# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
import unittest

import torch

from causeway.errors import ModelMismatch
from causeway.parameters import match, slots_of, unwrapped
from causeway.testing.least_squares import SHAPES, LeastSquares, run_of

class MatchTest(unittest.TestCase):

    def refused(self, model, run, message):
        with self.assertRaisesRegex(ModelMismatch, message):
            match(model, run)

    def test_finds_every_tensor_and_leaves_buffers_out(self):
        model = LeastSquares()
        pairs = match(model, run_of())
        self.assertEqual([info.name for info, _ in pairs], list(SHAPES))
        self.assertIs(pairs[4][1].parameter, model.head.weight)

    def test_names_a_tensor_that_the_model_lacks(self):
        self.refused(LeastSquares(), run_of({**SHAPES, "layers.2.bias": (4,)}),
                     r"no parameter layers.2.bias \[4\]")

    def test_names_a_tensor_that_the_run_lacks(self):
        shapes = {n: s for n, s in SHAPES.items() if n != "layers.1.bias"}
        self.refused(LeastSquares(), run_of(shapes),
                     r"the run has no tensor layers.1.bias \[4\]")

    def test_names_a_parameter_of_another_shape(self):
        self.refused(LeastSquares(), run_of({**SHAPES, "head.weight": (6, 10)}),
                     r"head.weight is \[10, 6\] in the model and \[6, 10\]")

    def test_lists_only_some_of_many_differences(self):
        self.refused(torch.nn.Linear(2, 2), run_of(),
                     "no parameter layers.0.weight.*; the run has no tensor "
                     "weight .*; and 2 more differences")

    def test_names_the_part_of_the_model_that_the_run_has(self):
        model = torch.nn.Module()
        model.a = torch.nn.Module()
        model.a.network = LeastSquares()
        model.other = torch.nn.Linear(2, 2)
        self.refused(model, run_of(), "are those of model.a.network: attach")
        model.a.network.layers = None
        self.refused(model, run_of(), "has no parameter layers.0.weight")

    def test_frozen_and_excluded_parameters_may_be_missing(self):
        shapes = {n: s for n, s in SHAPES.items() if n != "layers.1.bias"}
        model = LeastSquares()
        match(model, run_of(shapes, exclude=["*.1.b?as"]))
        model.layers[1].bias.requires_grad_(False)
        match(model, run_of(shapes))

    def test_tied_parameters_go_by_the_name_in_the_run(self):
        model = LeastSquares(tied=True)
        shapes = {n: s for n, s in SHAPES.items() if n != "head.weight"}
        for name in ("head.weight", "embedding.weight"):
            pairs = match(model, run_of({**shapes, name: (10, 6)}))
            self.assertIs(pairs[-1][1].parameter, model.head.weight)
        self.refused(model, run_of({**SHAPES, "embedding.weight": (10, 6)}),
                     "ties head.weight and embedding.weight")

    def test_a_scalar_is_a_tensor_of_one_value(self):
        model = torch.nn.Module()
        model.scale = torch.nn.Parameter(torch.tensor(1.0))
        match(model, run_of({"scale": (1,)}))

    def test_wrappers_leave_no_trace_in_names(self):
        inner = LeastSquares()
        compiled = torch.nn.Module()
        compiled._orig_mod = inner
        wrapped = torch.nn.DataParallel(compiled)
        self.assertIs(unwrapped(wrapped), inner)
        layer = torch.nn.Module()
        layer._checkpoint_wrapped_module = inner.layers[0]
        inner.layers[0] = layer
        names = [slot.names[0] for slot in slots_of(wrapped)]
        self.assertEqual(names, list(SHAPES))


if __name__ == "__main__":
    unittest.main()
