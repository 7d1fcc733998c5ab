# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""An island of one process that uses what came with PyTorch 2."""

import unittest

import torch
from torch import distributed
from torch._dynamo.utils import counters
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.distributed.fsdp import fully_shard

import causeway
from causeway.testing.processes import ProcessTestCase
from parallel_island import Regression, inputs_of, loss_of, tensor_parallel


class PyTorch2Test(ProcessTestCase):

    def setUp(self):
        super().setUp()
        self.start_coordinator(
            self.create_run(Regression(), min_islands=1, fragments=2))
        self.model = Regression()
        self.inputs = inputs_of(0)

    def join(self):
        return causeway.join(self.address, island="east", timeout=60)

    def begin_group(self):
        distributed.init_process_group(
            "gloo", init_method=f"file://{self.path('group')}", rank=0,
            world_size=1)
        self.addCleanup(distributed.destroy_process_group)

    def loss(self):
        return loss_of(self.model, self.inputs)

    def test_counts_the_steps_of_every_kind_of_optimizer(self):
        kinds = [(torch.optim.AdamW, dict(foreach=True)),
                 (torch.optim.AdamW, dict(fused=True)),
                 (torch.optim.Adam, dict(lr=torch.tensor(1e-3), fused=True)),
                 (torch.optim.SGD, dict(fused=True))]
        with self.join() as island:
            optimizers = [torch.optim.Muon(
                [p for p in self.model.parameters() if p.dim() == 2])]
            optimizers += [kind(self.model.parameters(), **fields)
                           for kind, fields in kinds]
            island.attach(self.model, optimizers)
            for step in range(1, 4):
                self.assertEqual(island.step, step)
                self.loss().backward()
                for optimizer in optimizers:
                    optimizer.step()

    def test_tensors_may_have_another_device_by_default(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        with torch.device("meta"):
            with self.join() as island:
                island.attach(self.model, optimizer)
                own = [p.detach().clone() for p in self.model.parameters()]
                state = island.state_dict()
                with island.merged_weights():
                    merged = [p.detach().clone()
                              for p in self.model.parameters()]
            with self.join() as island:
                island.load_state_dict(state)
            self.create_run(self.model, trainable_only=True, fragments=1)
        self.assertTrue(all(map(torch.equal, own, merged)))

    def skip_a_step(self, **fields):
        """Returns the tokens of the other two steps, of 32 each."""
        scaler = torch.amp.GradScaler("cpu")
        optimizer = torch.optim.AdamW(self.model.parameters(), **fields)
        with self.join() as island:
            island.attach(self.model, optimizer)
            with self.assertNoLogs("causeway"):
                for factor, step in ((1, 2), (float("inf"), 2), (1, 3)):
                    optimizer.zero_grad()
                    scaler.scale(factor * self.loss()).backward()
                    island.report(tokens=32)
                    scaler.step(optimizer)
                    scaler.update()
                    self.assertEqual(island.step, step)
            return int(island.progress["tokens"])

    def test_steps_that_a_scaler_skips_are_not_counted(self):
        self.assertEqual(self.skip_a_step(), 64)

    def test_steps_that_a_fused_optimizer_skips_are_not_counted(self):
        self.assertEqual(self.skip_a_step(fused=True), 64)

    def test_a_compiled_step_leaves_the_run_out_of_its_graph(self):
        optimizer = torch.optim.AdamW(self.model.parameters(),
                                      lr=torch.tensor(1e-3))
        with self.join() as island:
            island.attach(self.model, optimizer)
            step = torch.compile(optimizer.step, backend="eager")
            counters.clear()
            for _ in range(12):
                optimizer.zero_grad()
                loss = self.loss()
                loss.backward()
                island.report(tokens=32, loss=loss)
                step()
            self.assertEqual(island.step, 13)
            self.assertFalse(counters["graph_break"])

    def test_nor_does_a_compiled_loop_have_it(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        with self.join() as island:
            island.attach(self.model, optimizer)

            @torch.compile(backend="eager")
            def train():
                optimizer.zero_grad()
                self.loss().backward()
                optimizer.step()

            for step in range(1, 13):
                self.assertEqual(island.step, step)
                train()

    def test_an_optimizer_s_state_comes_and_goes_without_a_step(self):
        other = Regression()
        trained = torch.optim.AdamW(other.parameters())
        loss_of(other, self.inputs).backward()
        trained.step()
        state = checkpoint.get_optimizer_state_dict(other, trained)
        with self.join() as island:
            optimizer = torch.optim.AdamW(self.model.parameters())
            island.attach(self.model, optimizer)
            before = [p.detach().clone() for p in self.model.parameters()]
            checkpoint.set_optimizer_state_dict(self.model, optimizer, state)
            self.assertEqual(island.step, 1)
            for a, b in zip(before, self.model.parameters()):
                self.assertTrue(torch.equal(a, b))
            for a, b in zip(trained.state.values(), optimizer.state.values()):
                self.assertTrue(torch.equal(a["exp_avg"], b["exp_avg"]))
            self.loss().backward()
            optimizer.step()
            self.assertEqual(island.step, 2)

    def begin_fsdp(self):
        self.begin_group()
        for module in (*self.model.layers, self.model):
            fully_shard(module, reshard_after_forward=False)
        return torch.optim.SGD(self.model.parameters(), lr=0.1)

    def evaluate(self):
        with torch.no_grad():
            return float(self.loss())

    def test_fsdp_computes_with_the_values_that_the_model_has(self):
        optimizer = self.begin_fsdp()
        with self.join() as island:
            other = self.evaluate()
            island.attach(self.model, optimizer)
            initial = self.evaluate()
            self.assertNotEqual(initial, other)
            for _ in range(3):
                optimizer.zero_grad()
                self.loss().backward()
                optimizer.step()
                # Whole parameters stay in the model.
                own = self.evaluate()
                self.assertLess(own, initial)
                with island.merged_weights():
                    self.assertEqual(self.evaluate(), initial)
                self.assertEqual(self.evaluate(), own)

    def test_fsdp_may_keep_whole_parameters_during_a_step(self):
        optimizer = self.begin_fsdp()
        self.model.set_reshard_after_backward(False)
        with self.join() as island:
            island.attach(self.model, optimizer)
            for step in range(1, 13):
                self.assertEqual(island.step, step)
                before = self.evaluate()
                optimizer.zero_grad()
                self.loss().backward()
                optimizer.step()
                self.assertLess(self.evaluate(), before)

    def test_fsdp_s_shards_must_stay_where_they_are(self):
        optimizer = self.begin_fsdp()
        moves = [
            lambda bias: setattr(bias, "_local_tensor",
                                 bias._local_tensor.clone()),
            lambda bias: self.model.to(torch.bfloat16),
        ]
        for move in moves:
            with self.join() as island:
                island.attach(self.model, optimizer)
                move(self.model.layers[0].bias)
                with self.assertRaisesRegex(causeway.TensorMoved,
                                            "layers.0.bias"):
                    optimizer.step()

    def test_shards_of_other_dimensions_are_refused(self):
        self.begin_group()
        tensor_parallel(self.model, rows=True)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        with self.join() as island:
            with self.assertRaisesRegex(causeway.Unimplemented,
                                        r"layers.0.weight is placed as .*1"):
                island.attach(self.model, optimizer)


if __name__ == "__main__":
    unittest.main()
