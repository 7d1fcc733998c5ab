# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands whose parameters are in the memory of a GPU.

Skipped where PyTorch has none. tests/gpu/run.sh runs this on a machine with
one, where CAUSEWAY_COORDINATOR_PROGRAM names a causeway-coordinator, and
CAUSEWAY_LIBRARY a library that was built with CUDA unless the package is
installed.
"""

import concurrent.futures
import contextlib
import importlib.util
import io
import math
import os
import shutil
import sysconfig
import unittest
from unittest import mock

import torch

import causeway
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import ProcessTestCase

_STEPS = 24


class Fitting:
    """Trains a model towards known values, of which an island has a part.

    Makes the same bits on every device: a gradient is a difference of two
    values, half of which a step takes.
    """

    def __init__(self, device, dtype=torch.float32, part=0, parts=1):
        self.model = LeastSquares().to(device, dtype)
        self.part, self.parts = part, parts
        self._wanted = [self.model.wanted(name).to(device)
                        for name, _ in self.model.named_parameters()]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.update = self.optimizer.step

    def loss(self):
        """Like the model's forward pass, but copies nothing to the device."""
        loss = 0
        for parameter, wanted in zip(self.model.parameters(), self._wanted):
            error = (parameter.float() - wanted).reshape(-1)
            loss = loss + error[self.part::self.parts].square().sum() / 2
        return loss

    def step(self, island, loss=None):
        self.optimizer.zero_grad()
        loss = self.loss() if loss is None else loss
        loss.backward()
        island.report(tokens=32, loss=loss)
        self.update()

    def train(self, island):
        while not island.should_stop:
            self.step(island)

    def values(self):
        return [parameter.detach().to("cpu", torch.float32, copy=True)
                for parameter in self.model.parameters()]


class MovingFitting(Fitting):
    """Trains on one of two streams, in turns of three steps. Each update of
    the parameters comes late."""

    def train(self, island):
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        while not island.should_stop:
            stream = streams[island.step // 3 % 2]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                hold_gpu(0.02)
                self.step(island)
            torch.cuda.current_stream().wait_stream(stream)


class CompiledFitting(Fitting):
    """Trains with compiled passes, which are CUDA graphs inside, and a compiled
    optimizer."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.loss = torch.compile(self.loss, mode="reduce-overhead")
        self.update = torch.compile(self.optimizer.step)


class GraphFitting(Fitting):
    """Trains by replays of one CUDA graph, after a few other steps."""

    def train(self, island):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step(island)
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        captured = island.step
        with torch.cuda.graph(graph):
            loss = self.loss()
            loss.backward()
            self.optimizer.step()
        assert island.step == captured, "the capture was counted"
        while not island.should_stop:
            hold_gpu(0.02)
            graph.replay()
            island.report(tokens=32, loss=loss)
            island.step_done()


def _can_compile():
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return (importlib.util.find_spec("triton") is not None
            and os.path.exists(header)
            and any(map(shutil.which, ("cc", "gcc", "clang"))))


def hold_gpu(seconds):
    """Lets the current stream do nothing for about this time."""
    # Clocks have at most 2 GHz or a little more.
    torch.cuda._sleep(int(seconds * 2e9))


@unittest.skipUnless(torch.cuda.is_available(), "PyTorch has no GPU here")
class CudaTest(ProcessTestCase):

    def begin(self, islands=1, dtype=torch.float32, **fields):
        torch.manual_seed(1)
        fields = {"total_steps": _STEPS, "overlap_steps": 2, "fragments": 2,
                  **fields}
        files = self.create_run(LeastSquares().to(dtype), min_islands=islands,
                                **fields)
        return self.start_coordinator(files)

    def join(self, name="east", **fields):
        return causeway.join(self.address, island=name, timeout=60,
                             step_timeout=60, **fields)

    def merged_by(self, kind, device, islands, **run):
        """Returns the merged values of a run of islands, at its end."""
        folder, self.folder = self.folder, self.path(device)
        os.mkdir(self.folder)
        self.port = 0
        coordinator = self.begin(islands, **run)
        self.folder = folder

        def train(part):
            fitting = kind(device, run.get("dtype", torch.float32), part,
                           islands)
            with self.join(("east", "west")[part]) as island:
                island.attach(fitting.model, fitting.optimizer)
                fitting.train(island)
                with island.merged_weights():
                    return fitting.values()

        with concurrent.futures.ThreadPoolExecutor() as pool:
            later = [pool.submit(train, part) for part in range(1, islands)]
            merged = [train(0)] + [values.result() for values in later]
        self.assert_ends_well(coordinator)
        for values in merged[1:]:
            self.assert_equal(values, merged[0])
        return merged[0]

    def assert_equal(self, values, others, tolerance=0):
        for a, b in zip(values, others):
            torch.testing.assert_close(a, b, rtol=0, atol=tolerance)

    def assert_like_host(self, kind, islands=2, tolerance=0, **run):
        wanted = self.merged_by(Fitting, "cpu", islands, **run)
        self.assert_equal(self.merged_by(kind, "cuda", islands, **run), wanted,
                          tolerance)

    def test_islands_have_the_bits_of_islands_on_the_host(self):
        for name in ("FP32", "INT4"):
            with self.subTest(name):
                folder, self.folder = self.folder, self.path(name)
                os.mkdir(self.folder)
                self.assert_like_host(Fitting, format=name)
                self.folder = folder

    def test_parameters_of_16_bits(self):
        self.assert_like_host(Fitting, dtype=torch.bfloat16, tolerance=0.02)

    def test_the_stream_may_change(self):
        self.assert_like_host(MovingFitting)

    @unittest.skipUnless(_can_compile(), "Triton has no compiler here")
    def test_what_is_compiled_gets_new_values(self):
        self.assert_like_host(CompiledFitting, islands=1, tolerance=1e-6)

    def test_replays_of_a_graph_are_counted_by_hand(self):
        self.assert_like_host(GraphFitting, islands=1)

    @contextlib.contextmanager
    def attached(self, **fields):
        """Yields an island that trains alone, and its Fitting."""
        self.begin(**fields)
        fitting = Fitting("cuda")
        with self.join() as island:
            island.attach(fitting.model, fitting.optimizer)
            fitting.step(island)
            yield island, fitting

    def test_idle_steps_do_not_wait_for_the_device(self):
        with self.attached(inner_steps_per_round=_STEPS) as (island, fitting):
            # From now on all kernels are loaded.
            fitting.step(island, fitting.loss() + 100)
            hold_gpu(0.01)
            torch.cuda.synchronize()
            native = island._native
            with mock.patch.object(native, "after_step",
                                   wraps=native.after_step) as after_step:
                hold_gpu(2)
                for _ in range(5):
                    fitting.step(island, fitting.loss() + 100)
                self.assertFalse(torch.cuda.current_stream().query(),
                                 "the host waited for the device")
                torch.cuda.synchronize()
                fitting.step(island)
            losses = [call.args[1] for call in after_step.call_args_list]
            # The first one is of the step before.
            for loss in losses[1:5]:
                self.assertTrue(math.isnan(loss))
            self.assertGreaterEqual(losses[5], 100)

    def test_a_loss_that_is_not_finite_is_found_at_a_later_step(self):
        with self.attached() as (island, fitting):
            with torch.no_grad():
                fitting.model.head.weight[0, 0] = float("nan")
            with self.assertRaisesRegex(
                    causeway.Diverged,
                    "loss of step 2 is nan, and head.weight has values"):
                for _ in range(3):
                    fitting.step(island)
                    torch.cuda.synchronize()
            self.assertEqual(island.step, 3)

    def skip_a_step(self, **fields):
        self.begin()
        fitting = Fitting("cuda")
        scaler = torch.amp.GradScaler("cuda")
        optimizer = torch.optim.AdamW(fitting.model.parameters(), **fields)
        with self.join() as island:
            island.attach(fitting.model, optimizer)
            for factor, step in ((1, 2), (float("inf"), 2), (1, 3)):
                optimizer.zero_grad()
                scaler.scale(factor * fitting.loss()).backward()
                scaler.step(optimizer)
                scaler.update()
                self.assertEqual(island.step, step)

    def test_steps_that_a_scaler_skips_are_not_counted(self):
        self.skip_a_step()

    def test_steps_that_a_fused_optimizer_skips_are_not_counted(self):
        self.skip_a_step(fused=True)

    def test_a_state_has_what_the_device_was_given(self):
        with self.attached(overlap_steps=1,
                           total_steps=200) as (island, fitting):
            while island.step < 15:
                fitting.step(island)
            hold_gpu(0.5)
            fitting.step(island)
            file = io.BytesIO()
            torch.save(island.state_dict(), file)
            trained = fitting.values()
            island.close()
        file.seek(0)
        other = Fitting("cuda")
        with self.join() as island:
            island.load_state_dict(torch.load(file))
            island.attach(other.model, other.optimizer)
            self.assertEqual(island.step, 16)
            self.assert_equal(other.values(), trained, 1e-6)


if __name__ == "__main__":
    unittest.main()
