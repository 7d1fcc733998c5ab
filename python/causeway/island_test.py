# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands of PyTorch in runs with a real coordinator."""

import contextlib
import io
import os
import pathlib
import re
import unittest
import unittest.mock

import torch

import causeway
from causeway._library import CUDA
from causeway.attachment import Attachment
from causeway.state import unpack
from causeway.testing.least_squares import LeastSquares, largest_error
from causeway.testing.one_island import OneIslandTestCase
from causeway.testing.processes import (CONTINUE, KILL, STOP,
                                        ProcessTestCase)


class TwoIslandsTest(ProcessTestCase):
    """Tests that need two islands."""

    def train_two(self, model, error, run=None, **settings):
        coordinator = self.start_coordinator(
            self.create_run(model, **(run or {})))
        islands = [
            self.start_island(name, part=part, **settings)
            for part, name in enumerate(("east", "west"))
        ]
        for island in islands:
            self.assert_ends_well(island)
            self.assertLess(island.wait_for("end")["merged_error"], error)
        self.assert_ends_well(coordinator)

    def test_they_find_the_optimum(self):
        self.train_two(LeastSquares(), 1e-3)

    def test_they_find_it_in_four_bits(self):
        self.train_two(LeastSquares(), 0.1, dict(format="INT4"))

    def test_they_find_it_in_bf16(self):
        self.train_two(LeastSquares().to(torch.bfloat16), 0.03,
                       dtype="bfloat16")

    def test_tied_weights_are_one_tensor(self):
        self.train_two(LeastSquares(tied=True), 1e-3, tied=True)

    def test_frozen_weights_stay_out(self):
        model = LeastSquares()
        model.head.weight.requires_grad_(False)
        self.train_two(model, 1e-3, dict(fragments=2), frozen="head")


class OneIslandTest(OneIslandTestCase):

    def test_says_what_the_run_is(self):
        self.begin(total_steps=30)
        with self.join() as island:
            run = island.run
            self.assertEqual((run.name, run.island, run.total_steps),
                             ("test", "east", 30))
            self.assertEqual((run.shard, run.shards, run.data_order,
                              run.batch_size), (0, 1, 0, 4))
            self.assertEqual(run.parameters, 116)
            self.assertEqual(len(run.tensors), 5)
            self.assertEqual(run.configuration["name"], "test")

    def test_loads_the_values_of_the_run(self):
        self.begin()
        other = LeastSquares()
        with self.join() as island:
            island.attach(other, torch.optim.SGD(other.parameters(), lr=0.1))
            for a, b in zip(other.parameters(), self.model.parameters()):
                self.assertTrue(torch.equal(a, b))

    def test_says_what_it_waits_for(self):
        self.start_coordinator(self.create_run(self.model, min_islands=2))
        with self.join(step_timeout=0.1) as island:
            with self.assertRaises(causeway.Timeout):
                island.attach(self.model, self.optimizer)
            # The coordinator may not have heard yet that the island is ready.
            missing = "waiting for islands; 1 island missing"
            while island.waiting_for != missing:
                with self.assertRaises(causeway.Timeout):
                    island.wait()
            with self.assertRaisesRegex(causeway.Timeout, missing):
                island.wait()
            other = LeastSquares()
            with causeway.join(self.address, island="west") as west:
                west.attach(other, torch.optim.SGD(other.parameters(), lr=0.1))
                while island.waiting_for:
                    with contextlib.suppress(causeway.Timeout):
                        island.wait()
                self.assertEqual(island.step, 1)

    def test_says_that_the_coordinator_does_not_answer(self):
        files = self.create_run(self.model, min_islands=2)
        coordinator = self.start_coordinator(files)
        with self.join(step_timeout=0.1) as island:
            with self.assertRaises(causeway.Timeout):
                island.attach(self.model, self.optimizer)

            def wait_until(is_cut_off):
                words = "; the coordinator does not answer"
                while island.waiting_for.endswith(words) != is_cut_off:
                    with self.assertRaises(causeway.Timeout):
                        island.wait()

            wait_until(False)
            coordinator.signal(STOP)
            wait_until(True)
            coordinator.signal(CONTINUE)
            wait_until(False)
            coordinator.signal(KILL)
            coordinator.wait()
            wait_until(True)
            self.start_coordinator(files)
            wait_until(False)

    def test_names_what_does_not_fit(self):
        self.begin()
        with self.join() as island:
            other = LeastSquares()
            other.head = torch.nn.Linear(6, 11, bias=False)
            optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
            with self.assertRaisesRegex(causeway.ModelMismatch,
                                        r"head.weight is \[11, 6\]"):
                island.attach(other, optimizer)
            # The island has not ended.
            island.attach(self.model, self.optimizer)
            self.step()

    def test_counts_tokens_and_steps(self):
        with self.attached(total_steps=20) as island:
            for step in range(1, 21):
                self.assertEqual(island.step, step)
                self.assertFalse(island.should_stop)
                if step == 1:
                    island.report(tokens=5, loss=2.0)
                    island.report(tokens=torch.ones(3, 5).sum(),
                                  loss=torch.tensor(6.0))
                if step == 2:
                    island.report(tokens=0)
                if step == 3:
                    island.report(None, loss=2.0)
                self.step()
                if step == 1:
                    progress = island.progress
            self.assertTrue(island.should_stop)
            # The first step has two reports, the second has one of 0 tokens,
            # and the others have none of tokens.
            self.assertEqual(int(progress["tokens"]), 20)
            self.assertEqual(progress["loss"], 5.0)
            self.assertEqual(int(island.progress["tokens"]), 20 + 18 * 32)
            self.step()

    def test_more_tokens_than_a_step_can_have_are_warned_of_once(self):
        with self.assertLogs("causeway", "WARNING") as logs:
            with self.attached() as island:
                for tokens in (33, 32, 33, 34, 100):
                    island.report(tokens=tokens)
                    self.step()
                self.assertEqual(int(island.progress["tokens"]), 5 * 32)
                island.leave()
        said = [line for line in logs.output if "over all ranks" in line]
        self.assertEqual(len(said), 1, logs.output)
        self.assertRegex(said[0], "step 4 has 34 tokens over all ranks, and "
                         "the run counts at most 32 .* once for each step")

    def test_steps_in_a_pause_are_none_of_the_run(self):
        with self.attached() as island:
            with island.paused():
                self.step()
            self.assertEqual(island.step, 1)
            self.step()
            self.assertEqual(island.step, 2)

    def test_steps_that_no_hook_sees_are_counted_by_hand(self):
        self.begin(total_steps=12)
        with self.join() as island:
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "call attach.* before"):
                island.step_done()
            island.attach(self.model, self.optimizer)
            for step in range(1, 13):
                self.assertEqual(island.step, step)
                with island.paused():
                    self.step()
                island.report(tokens=7)
                island.step_done()
            self.assertTrue(island.should_stop)
            self.assertEqual(int(island.progress["tokens"]), 12 * 7)
            island.step_done()

    def test_merged_weights_come_and_go(self):
        with self.attached() as island:
            initial = self.values()
            self.step()
            own = self.values()
            with island.merged_weights():
                self.assert_values(initial)
            self.assert_values(own)

    def test_synchronize_brings_what_is_in_flight(self):
        self.begin(fragments=1, overlap_steps=9)
        with self.join() as island:
            with self.assertRaises(causeway.InvalidArgument):
                island.synchronize()
            island.attach(self.model, self.optimizer)
            initial = self.values()
            while island.step <= 10:
                self.step()
            sent = self.values()
            self.step()
            own = self.values()
            with island.merged_weights():
                for call in island.synchronize, island.leave, island.state_dict:
                    with self.assertRaises(causeway.InvalidArgument):
                        call()
                self.assert_values(initial)
            island.synchronize()
            self.assertEqual(island.step, 12)
            # The step since the send stays.
            for a, b in zip(self.model.parameters(), own):
                torch.testing.assert_close(a, b)
            # The round merges this island alone, by averaging.
            with island.merged_weights():
                for a, b, c in zip(self.model.parameters(), sent, own):
                    torch.testing.assert_close(a, b)
                    self.assertFalse(torch.equal(b, c))

    def assert_notices_a_replaced_tensor_in_step(self, number, after=0):
        with self.join() as island:
            island.attach(self.model, self.optimizer)
            while island.step <= after:
                self.step()
            # The last of five.
            name = island.run.tensors[-1].name
            parameter = self.model.get_parameter(name)
            parameter.data = parameter.data.clone()
            with self.assertRaisesRegex(causeway.TensorMoved, name):
                for _ in range(5):
                    self.step()
            self.assertEqual(island.step, number)

    def test_notices_an_optimizer_that_replaces_tensors(self):
        self.begin(fragments=1)
        self.assert_notices_a_replaced_tensor_in_step(5)

    def test_notices_it_before_a_fragment_is_sent(self):
        self.begin(fragments=2)
        self.assert_notices_a_replaced_tensor_in_step(15, after=14)

    def test_notices_it_before_the_last_step_is_sent(self):
        self.begin(total_steps=4, inner_steps_per_round=3, fragments=1)
        self.assert_notices_a_replaced_tensor_in_step(4, after=3)

    def test_values_that_are_not_finite_are_an_error(self):
        with self.attached() as island:
            with self.assertRaises(causeway.Diverged):
                for _ in range(100):
                    with torch.no_grad():
                        self.model.head.weight[0, 0] = float("nan")
                    self.step()
            self.assertTrue(island.should_stop)

    def step_with(self, value):
        """Makes a step with this gradient of one value."""
        self.optimizer.zero_grad()
        self.model(0, 1).backward()
        self.model.head.weight.grad[0, 0] = value
        self.optimizer.step()

    def test_a_loss_that_is_not_finite_is_named_at_its_step(self):
        with self.attached() as island:
            self.step()
            # A scaler would have skipped the step of this loss.
            island.report(tokens=1, loss=float("inf"))
            with self.assertLogs("causeway", "WARNING") as logs:
                self.step()
            self.assertIn("the loss of step 2 is inf", logs.output[0])
            island.report(tokens=1, loss=float("nan"))
            with self.assertRaisesRegex(
                    causeway.Diverged,
                    "loss of step 3 is nan, and head.weight has values"):
                self.step_with(float("nan"))
            self.assertTrue(island.should_stop)
        events = self.tool("events", "--coordinator", self.address)
        self.assertRegex(events,
                         "island_evicted .*the loss of step 3 is nan")

    def test_what_counts_no_step_is_an_error(self):
        self.begin()
        with self.join() as island:
            for call in (lambda: island.report(tokens=1),
                         lambda: island.should_stop, island.wait,
                         lambda: island.save(self.path("state"))):
                with self.assertRaisesRegex(causeway.InvalidArgument,
                                            "call attach.* before"):
                    call()
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "the model is of type generator"):
                island.attach(self.model.parameters(), self.optimizer)
            for optimizer in (None, [], [self.optimizer, None]):
                with self.assertRaisesRegex(causeway.InvalidArgument,
                                            "the optimizer is None"):
                    island.attach(self.model, optimizer)
            island.attach(self.model, self.optimizer)
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "the loss has 4 values"):
                island.report(tokens=4, loss=torch.ones(4))
            self.step()
            self.assertEqual(island.step, 2)

    def test_a_loop_that_steps_another_optimizer_is_warned(self):
        with self.attached() as island:
            other = torch.optim.SGD(self.model.parameters(), lr=0.4)
            with self.assertLogs("causeway", "WARNING") as logs:
                for _ in range(300):
                    island.report(tokens=32)
                    other.step()
            self.assertEqual(len(logs.output), 1)
            self.assertIn("attached optimizer has made no step", logs.output[0])
            self.assertEqual(island.step, 1)

    def test_parameters_that_were_added_are_refused_at_once(self):
        with self.attached() as island:
            self.model.extra = torch.nn.Linear(2, 2, bias=False)
            self.optimizer.add_param_group(
                {"params": self.model.extra.parameters()})
            before = self.model.head.weight.detach().clone()
            with self.assertRaisesRegex(
                    causeway.ModelMismatch,
                    "extra.weight was added to the optimizer after"):
                self.step()
            self.assertTrue(torch.equal(before, self.model.head.weight))
            del self.optimizer.param_groups[-1]
            self.step()
            self.assertEqual(island.step, 2)

    def test_an_error_that_ended_the_island_comes_again(self):
        with self.attached() as island:
            island._most_tokens = float("inf")
            island.report(tokens=10**12)
            with self.assertRaisesRegex(causeway.RunMismatch,
                                        "cannot have") as first:
                for _ in range(100):
                    self.step()
            self.assertTrue(island.should_stop)
            before = self.model.head.weight.detach().clone()
            for call in (self.step, lambda: island.report(tokens=1),
                         island.synchronize, island.wait,
                         lambda: island.save(self.path("state")),
                         lambda: island.progress):
                with self.assertRaises(causeway.RunMismatch) as again:
                    call()
                self.assertEqual(str(again.exception), str(first.exception))
            self.assertTrue(torch.equal(before, self.model.head.weight))

    def wait_in_vain(self, island):
        """Checks calls after one that has raised Timeout."""
        before = self.values()
        with self.assertRaises(causeway.Timeout):
            island.wait()
        for call in (self.step, island.state_dict,
                     lambda: island.attach(self.model, self.optimizer)):
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        r"call island.wait\(\)"):
                call()
        self.assert_values(before)

    def test_a_step_is_made_once_however_long_its_wait_takes(self):
        self.start_coordinator(self.create_run(self.model))
        other = LeastSquares()
        optimizer = torch.optim.SGD(other.parameters(), lr=0.4)
        with contextlib.ExitStack() as stack:
            island = stack.enter_context(self.join(step_timeout=0.3))
            with self.assertRaises(causeway.Timeout):
                island.attach(self.model, self.optimizer)
            self.wait_in_vain(island)
            west = stack.enter_context(
                causeway.join(self.address, island="west"))
            west.attach(other, optimizer)
            self.await_step(island)
            with self.assertRaises(causeway.Timeout):
                while True:
                    self.step()
            self.assertGreaterEqual(int(island.progress["tokens"]), 10 * 32)
            tokens = island.progress["tokens"]
            self.wait_in_vain(island)
            self.assertEqual(island.progress["tokens"], tokens)
            step = island.step
            while west.step <= step:
                optimizer.step()
            self.await_step(island)
            self.step()
            self.assertEqual(island.step, step + 2)

    def test_an_interrupt_as_the_librarys_call_returns_loses_nothing(self):
        with self.attached() as island:
            self.interrupt(island, "_call_after_step", self.step)
            self.assertEqual(island.step, 2)
            self.step()
            self.interrupt(island, "_call_after_step", self.step)
            island.wait()
            self.assertEqual(island.step, 4)
            before = int(island.progress["tokens"])
            self.step()
            self.assertGreater(int(island.progress["tokens"]), before)
            self.interrupt(island, "_closing", island.close)
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "the island is closed"):
                island.request_leave()

    def interrupt(self, island, name, call):
        """Lets the function of the library raise KeyboardInterrupt at its end,
        as the handler of SIGINT may."""
        native = island._native
        function = getattr(native, name)

        def interrupted(*arguments):
            setattr(native, name, function)
            function(*arguments)
            raise KeyboardInterrupt

        setattr(native, name, interrupted)
        with self.assertRaises(KeyboardInterrupt):
            call()

    def await_step(self, island):
        while True:
            try:
                return island.wait()
            except causeway.Timeout:
                pass

    def test_goes_on_from_a_state(self):
        with self.attached() as island:
            for _ in range(15):
                self.step()
            file = io.BytesIO()
            torch.save(island.state_dict(), file)
            folder = pathlib.Path(self.path("state_of_east"))
            island.save(folder)
            trained = largest_error(self.model)
        file.seek(0)
        state = torch.load(file)

        def go_on(island):
            other = LeastSquares()
            island.attach(other, torch.optim.SGD(other.parameters(), lr=0.1))
            self.assertEqual(island.step, 16)
            self.assertAlmostEqual(largest_error(other), trained, places=6)

        with self.join() as island:
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "no island's state, but has .'model'"):
                island.load_state_dict({"model": {}})
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "the island's state is damaged"):
                island.load_state_dict({"island": torch.UntypedStorage(7)})
            island.load_state_dict(state)
            # Nothing is left of a state that another one replaces.
            island.load_state_dict({"island": None})
            island.load_state_dict(state)
            go_on(island)
        self.assertIn("resumes from a saved state",
                      self.tool("events", "--coordinator", self.address))
        # The folder stays as it is, and may also be the island's own.
        os.remove(folder / "lock")
        self.join(resume=folder).close()
        self.assertEqual(os.listdir(folder), ["island.safetensors"])
        with self.join(resume=folder, checkpoint_dir=folder) as island:
            go_on(island)
        with self.assertRaisesRegex(causeway.NotFound, "no state of an isl"):
            self.join(resume=self.path("mistyped"))

    def test_a_state_may_be_larger_than_a_c_int(self):
        size = 2**31 + 16
        # The memory is never touched, so that the file's header has no bytes.
        with unittest.mock.patch("causeway.state.open", create=True,
                                 new=unittest.mock.mock_open()) as opened:
            unpack(torch.UntypedStorage(size), "folder")
        self.assertEqual(len(opened().write.call_args[0][0]), size)

    def test_a_folder_that_takes_no_state_leaves_the_island(self):
        self.begin(total_steps=12)
        kept = self.path("kept")
        with self.join(checkpoint_dir=kept) as island:
            island.attach(self.model, self.optimizer)
            with self.assertRaisesRegex(causeway.NotFound, "none"):
                island.save(self.path("none/state"))
            island.save(kept)
            self.assertFalse(island.should_stop)
            for step in range(1, 13):
                self.assertEqual(island.step, step)
                self.step()
            self.assertTrue(island.should_stop)
            self.assertEqual(island.state_dict(), {"island": None})

    def test_a_closed_island_refuses_calls(self):
        with self.attached() as island:
            self.step()

        def merge():
            with island.merged_weights():
                pass

        for call in (lambda: island.save(self.path("state")),
                     lambda: island.progress, island.state_dict,
                     island.request_leave, merge):
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "the island is closed"):
                call()
        island.close()

    def test_tensors_that_the_library_refuses_end_the_island_with_a_reason(
            self):
        self.begin()
        with self.assertRaises(causeway.Error) as refused:
            with self.join() as island:
                buffers = Attachment(self.model, island.run).buffers()
                # They are in the host's memory.
                for buffer in buffers:
                    buffer.device = CUDA
                island._native.attach(buffers)
        events = self.tool("events", "--coordinator", self.address)
        self.assertRegex(events, "island_[a-z]+ .*east.*"
                         + re.escape(str(refused.exception)))

    def test_an_island_that_is_late_for_the_run_ends_well(self):
        self.start_coordinator(
            self.create_run(self.model, min_islands=1, total_steps=10),
            stays=True)
        with self.join() as island:
            island.attach(self.model, self.optimizer)
            while not island.should_stop:
                self.step()
        with self.assertRaisesRegex(causeway.RunFinished,
                                    "is finished: every fragment") as late:
            self.join()
        self.assertEqual(late.exception.code, 0)
        for process in [
                self.start_island("west", rank=rank, ranks=2,
                                  group_file=self.path("group"))
                for rank in range(2)
        ]:
            self.assert_ends_well(process)
            self.assertEqual(process.events(), [])

    def test_a_second_island_of_the_name_in_a_process_is_refused(self):
        self.begin()
        with self.join():
            with self.assertRaisesRegex(causeway.NameTaken, "this process"):
                self.join()
        self.join().close()

    def test_a_child_that_was_forked_gets_an_error(self):
        with self.attached() as island:
            child = os.fork()
            if child == 0:
                try:
                    self.step()
                    os._exit(1)
                except causeway.RunMismatch:
                    island.close()
                    os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.step()
            self.assertEqual(island.step, 2)

    def test_a_stream_has_no_sampler(self):
        self.begin()
        with self.join() as island:
            with self.assertRaisesRegex(causeway.InvalidArgument,
                                        "range_iterator has no .*run.shards"):
                island.sampler(iter(range(9)), 4)

    def test_data_loaders_with_processes_work(self):
        with self.attached(total_steps=12) as island:
            seen = []
            data = torch.arange(24)
            loader = torch.utils.data.DataLoader(
                data, batch_sampler=island.sampler(data, batch_size=2),
                num_workers=2)
            for batch in loader:
                seen += batch.tolist()
                self.step()
                if island.should_stop:
                    break
            self.assertEqual(sorted(seen), list(range(24)))


if __name__ == "__main__":
    unittest.main()
