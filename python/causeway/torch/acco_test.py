# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Acco against plain training and against its equations, in real processes."""

from __future__ import annotations

import copy
import datetime
import os
import tempfile
import time
import unittest
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn

from causeway.torch import Acco, NonFiniteError
from causeway.torch.testing import CONTEXT, join_group, run_ranks

MODES = ("acco", "ddp")
# A large epsilon keeps AdamW from enlarging errors of rounding.
ADAMW = {"lr": 0.02, "betas": (0.8, 0.9), "eps": 1e-2, "weight_decay": 0.1}
MAX_NORM = 0.5


def rate(step: int) -> float:
    """The learning rate of a step, over the first one's."""
    return 1 / (1 + 0.1 * step)


# ---- Models and data

class Tied(nn.Module):
    """An output layer that shares the embedding, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.frozen = nn.Linear(5, 5)
        self.frozen.requires_grad_(False)
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 7)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        tokens = (x[:, 0].float().abs() * 10).long() % 7
        return self.head(self.norm(self.frozen(self.embedding(tokens)).tanh()))


def make_model(kind: str, seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "tied":
        return Tied()
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3))
    return model.bfloat16() if kind == "bf16" else model


def inputs(rank: int, number: int, dtype: torch.dtype) -> Tensor:
    """Micro-batch `number` of a rank: one to three samples."""
    torch.manual_seed(1000 * rank + number)
    return torch.randn(1 + (rank + number) % 3, 4, dtype=torch.float64).to(
        dtype)


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x).double() - 1).square().mean()


def dtype_of(model: nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


class Batches:
    """A rank's micro-batches, as Acco.step calls for them."""

    def __init__(self, model: nn.Module, rank: int, first: int = 0) -> None:
        self.model, self.rank, self.number = model, rank, first

    def __call__(self) -> tuple[Tensor, int]:
        x = inputs(self.rank, self.number, dtype_of(self.model))
        self.number += 1
        loss = loss_of(self.model, x)
        loss.backward()
        return loss, len(x)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().reshape(-1)
                      for p in model.parameters() if p.requires_grad])


def groups_of(parameters: list[Tensor]) -> list[dict[str, Any]]:
    """AdamW's groups: weight decay for matrices only."""
    return [{"params": [p for p in parameters if p.dim() > 1]},
            {"params": [p for p in parameters if p.dim() == 1],
             "weight_decay": 0.0, "lr": 0.01}]


# ---- What the ranks run

def train(rank: int, kind: str, mode: str, shares: list[int], steps: int,
          grouped: bool = False) -> dict[str, Any]:
    # Rank 0's frozen parameters reach the others with a module only.
    model = make_model(kind, seed=1 if grouped else 1 + rank)
    parameters = groups_of(list(model.parameters())) if grouped else model
    acco = Acco(parameters, torch.optim.AdamW, **ADAMW, mode=mode,
                micro_batches=shares[rank], max_norm=MAX_NORM,
                fixed_micro_batches=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(acco.optimizer, rate)
    batches = Batches(model, rank)
    results = []
    for _ in range(steps):
        results.append(acco.step(batches))
        scheduler.step()
    dist.barrier()
    return {"parameters": flat(model), "results": results,
            "state": acco.state_dict(), "made": acco.micro_batches_made,
            "model": model.state_dict()}


def for_each(rank: int, function: Callable[..., Any],
             cases: list[tuple[Any, ...]]) -> list[Any]:
    """Runs many cases in one start of the processes."""
    return [function(rank, *case) for case in cases]


def interrupt(rank: int, mode: str, kind: str) -> tuple[Tensor, Tensor]:
    """Trains 7 steps, and 3 and 4 with a new object; returns both ends."""

    def make() -> tuple[nn.Module, Acco]:
        model = make_model(kind)
        return model, Acco(model, torch.optim.AdamW, **ADAMW, mode=mode,
                           micro_batches=3, fixed_micro_batches=True)

    model, acco = make()
    batches = Batches(model, rank)
    for step in range(7):
        if step == 3:
            state = copy.deepcopy(acco.state_dict())
        acco.step(batches)
    resumed_model, resumed = make()
    resumed.load_state_dict(state)
    batches = Batches(resumed_model, rank, resumed.micro_batches_made)
    while resumed.steps < 7:
        resumed.step(batches)
    dist.barrier()
    return flat(model), flat(resumed_model)


def record_uneven(rank: int, ahead: Any) -> tuple[list[Any], Any, Tensor]:
    """Rank 1 is slow; returns each micro-batch's point, gradient, weight."""
    model = make_model("plain")
    acco = Acco(model, torch.optim.SGD, lr=0.1, micro_batches=10)
    batches = Batches(model, rank)
    calls = []

    def micro_batch() -> tuple[Tensor, int]:
        # Rank 0 communicates in vain from its sixth micro-batch on.
        if rank == 1 and not calls:
            ahead.wait()
            # Then rank 0 makes no more, though it has the time.
            time.sleep(0.2)
        point = flat(model)
        loss, samples = batches()
        gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        calls.append((point, gradient.double(), samples))
        if rank == 0 and len(calls) == 45:
            ahead.set()
        return loss, samples

    result = acco.step(micro_batch)
    dist.barrier()
    return calls, result, flat(model)


def lose_rank_1(rank: int, how: str, over: Any) -> Optional[list[str]]:
    """Returns the errors of the step in which rank 1 is lost, and the next."""
    model = make_model("plain")
    # The time limit counts from here on, too.
    dist.barrier()
    acco = Acco(model, torch.optim.AdamW, timeout=datetime.timedelta(
        seconds=5 if how == "late" else 60))
    batches = Batches(model, rank)

    def micro_batch() -> tuple[Tensor, int]:
        if rank == 1 and acco.micro_batches_made == 5:
            if how == "dies":
                os._exit(1)
            elif how == "late":
                over.wait()
            else:
                raise OSError("the disk is gone")
        return batches()

    errors = []
    for _ in range(20):
        try:
            acco.step(micro_batch)
        except (RuntimeError, OSError) as error:
            errors.append(f"{type(error).__name__}: {error}")
            over.set()
            if len(errors) == 2:
                break
    return errors


def meet_nan(rank: int, mode: str, damaged: int) -> dict[str, Any]:
    """Rank 1's micro-batch number `damaged` is not a number."""

    def make() -> tuple[nn.Module, Acco]:
        model = make_model("plain")
        return model, Acco(model, torch.optim.AdamW, **ADAMW, mode=mode,
                           fixed_micro_batches=True)

    model, acco = make()
    batches = Batches(model, rank)

    def micro_batch() -> tuple[Tensor, int]:
        loss, samples = batches()
        if rank == 1 and batches.number == damaged:
            model[0].weight.grad[0, 0] = float("nan")
        return loss, samples

    errors = []
    for _ in range(6):
        before = flat(model)
        try:
            acco.step(micro_batch)
        except NonFiniteError as error:
            errors.append((str(error), bool(torch.equal(before, flat(model)))))
            place = batches.number
    # This run begins behind the damage.
    fresh_model, fresh = make()
    batches = Batches(fresh_model, rank, place)
    while fresh.steps < acco.steps:
        fresh.step(batches)
    dist.barrier()
    return {"errors": errors, "parameters": flat(model), "steps": acco.steps,
            "fresh": flat(fresh_model)}


def disagree(rank: int) -> list[str]:
    errors = []
    for kind, mode in ((("plain", "tied")[rank], "acco"),
                       ("plain", ("acco", "ddp")[rank])):
        try:
            Acco(make_model(kind), torch.optim.AdamW, mode=mode)
        except ValueError as error:
            errors.append(str(error))
    dist.barrier()
    return errors


# ---- What they are compared with

class Reference:
    """The equations of docs/numerics.md, in fp64, without sharding."""

    def __init__(self, shares: list[int]) -> None:
        self.model = make_model("plain").double()
        self.shares = shares
        self.next = [0] * len(shares)
        self.theta = flat(self.model)
        self.m = torch.zeros_like(self.theta)
        self.v = torch.zeros_like(self.theta)
        self.updates = 0

    def gradient(self, theta: Tensor,
                 counts: list[int]) -> tuple[Tensor, int]:
        """The sum over `counts` micro-batches of the ranks, and the samples."""
        nn.utils.vector_to_parameters(theta, self.model.parameters())
        total, samples = torch.zeros_like(theta), 0
        for rank, count in enumerate(counts):
            for _ in range(count):
                x = inputs(rank, self.next[rank], torch.float32).double()
                self.next[rank] += 1
                grads = torch.autograd.grad(loss_of(self.model, x),
                                            self.model.parameters())
                total += len(x) * torch.cat([g.reshape(-1) for g in grads])
                samples += len(x)
        return total, samples

    def opt(self, g: tuple[Tensor, int], commit: bool = True) -> Tensor:
        mean = g[0] / g[1]
        mean = mean * min(1, MAX_NORM / (mean.norm().item() + 1e-6))
        beta1, beta2 = ADAMW["betas"]
        lr = ADAMW["lr"] * rate(self.updates)
        # A prediction follows the update that it goes beyond.
        t = self.updates + 1
        m = beta1 * self.m + (1 - beta1) * mean
        v = beta2 * self.v + (1 - beta2) * mean.square()
        theta = self.theta * (1 - lr * ADAMW["weight_decay"])
        theta = theta - (lr / (1 - beta1 ** t) * m
                         / ((v / (1 - beta2 ** t)).sqrt() + ADAMW["eps"]))
        if commit:
            self.theta, self.m, self.v, self.updates = theta, m, v, t
        return theta

    def acco(self, steps: int) -> Tensor:
        first = [share - share // 2 for share in self.shares]
        second = [max(1, share // 2) for share in self.shares]
        early = self.gradient(self.theta, second)
        for _ in range(steps):
            estimate = self.opt(early, commit=False)
            late = self.gradient(self.theta, first)
            self.opt((early[0] + late[0], early[1] + late[1]))
            early = self.gradient(estimate, second)
        return self.theta

    def ddp(self, steps: int) -> Tensor:
        for _ in range(steps):
            self.opt(self.gradient(self.theta, self.shares))
        return self.theta


def train_plainly(kind: str, shares: list[int], steps: int,
                  grouped: bool) -> Tensor:
    """Data parallel training by one process on the joined batch."""
    model = make_model(kind)
    parameters = [p for p in model.parameters() if p.requires_grad]
    masters = [p.detach().float().clone() for p in parameters]
    groups = groups_of(masters) if grouped else [{"params": masters}]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    numbers = [0] * len(shares)
    for _ in range(steps):
        batch = []
        for rank, share in enumerate(shares):
            for _ in range(share):
                batch.append(inputs(rank, numbers[rank], dtype_of(model)))
                numbers[rank] += 1
        model.zero_grad()
        loss_of(model, torch.cat(batch)).backward()
        for master, parameter in zip(masters, parameters):
            master.grad = parameter.grad.float()
        nn.utils.clip_grad_norm_(masters, MAX_NORM)
        optimizer.step()
        scheduler.step()
        for master, parameter in zip(masters, parameters):
            parameter.data.copy_(master)
    # Acco's vector has the groups one after the other.
    ordered = [p for group in groups for p in group["params"]]
    return torch.cat([p.reshape(-1) for p in ordered]).double()


def joined(ranks: list[dict[str, Any]]) -> Tensor:
    """The committed parameters in fp32, from the ranks' states."""
    return torch.cat([rank["state"]["parameters"] for rank in ranks]).double()


class DdpTest(unittest.TestCase):
    CASES = [(kind, "ddp", [2, 1, 3], 25, grouped)
             for kind, grouped in (("plain", True), ("tied", False),
                                   ("bf16", True))]

    @classmethod
    def setUpClass(cls) -> None:
        results = zip(*run_ranks(3, for_each, train, cls.CASES))
        cls.results = {case[0]: (case, list(ranks))
                       for case, ranks in zip(cls.CASES, results)}

    def check_ddp(self, kind: str, tolerance: float) -> list[dict[str, Any]]:
        (_, _, shares, steps, grouped), ranks = self.results[kind]
        expected = train_plainly(kind, shares, steps, grouped)
        error = (joined(ranks)[:len(expected)] - expected).abs().max().item()
        self.assertLess(error, tolerance)
        for rank in ranks:
            self.assertTrue(
                torch.equal(rank["parameters"], ranks[0]["parameters"]))
        return ranks

    def test_ddp_is_plain_training_on_the_joined_batch(self) -> None:
        ranks = self.check_ddp("plain", 2e-6)
        self.assertEqual(ranks[1]["results"][0].micro_batches, (2, 1, 3))
        self.assertEqual([rank["made"] for rank in ranks], [50, 25, 75])

    def test_tied_parameters_are_one_and_frozen_ones_stay(self) -> None:
        model = self.check_ddp("tied", 2e-6)[1]["model"]
        for name in ("frozen.weight", "frozen.bias"):
            self.assertTrue(torch.equal(
                model[name], make_model("tied").state_dict()[name]))
        self.assertTrue(torch.equal(model["head.weight"],
                                    model["embedding.weight"]))

    def test_bf16_models_have_an_fp32_master(self) -> None:
        # The gradient of a joined batch is rounded once, not once a part.
        ranks = self.check_ddp("bf16", 5e-3)
        model = make_model("bf16")
        order = groups_of(list(model.parameters()))
        size = sum(p.numel() for p in model.parameters())
        nn.utils.vector_to_parameters(
            joined(ranks)[:size].bfloat16(),
            [p for group in order for p in group["params"]])
        self.assertTrue(torch.equal(flat(model), ranks[0]["parameters"]))


class ModesTest(unittest.TestCase):

    def test_all_modes_follow_their_equations(self) -> None:
        shares, steps = [2, 1, 5], 40
        ranks = run_ranks(3, for_each, train, [
            ("plain", mode, shares, steps) for mode in MODES])
        ends = {}
        for number, mode in enumerate(MODES):
            ends[mode] = getattr(Reference(shares), mode)(steps)
            for rank in ranks:
                error = (rank[number]["parameters"] - ends[mode]).abs().max()
                self.assertLess(error.item(), 1e-5, mode)
            for other in MODES[:number]:
                distance = (ends[mode] - ends[other]).abs().max().item()
                self.assertGreater(distance, 1e-3, f"{mode}, {other}")
        self.assertEqual(ranks[0][0]["results"][-1].micro_batches,
                         (2, 2, 5))

    def test_all_modes_resume_with_the_same_bits(self) -> None:
        cases = [(mode, kind) for mode in MODES for kind in ("plain", "bf16")]
        for rank in run_ranks(2, for_each, interrupt, cases):
            for case, (whole, resumed) in zip(cases, rank):
                self.assertTrue(torch.equal(whole, resumed), case)


class RanksTest(unittest.TestCase):

    def test_a_fast_rank_makes_more_and_each_sample_counts_once(self) -> None:
        ahead = CONTEXT.Event()
        (fast, result, end), (slow, _, _) = run_ranks(2, record_uneven, ahead)
        theta = flat(make_model("plain"))
        used = [call for call in fast + slow if torch.equal(call[0], theta)]
        samples = sum(call[2] for call in used)
        self.assertEqual(result.samples, samples)
        # Half a share without communication, and then half of eight shares.
        self.assertEqual(result.micro_batches[0], 45)
        self.assertEqual(sum(result.micro_batches), len(used))
        mean = sum(call[1] * call[2] for call in used) / samples
        self.assertLess((theta - 0.1 * mean - end).abs().max().item(), 1e-6)

    def test_a_lost_rank_is_an_exception(self) -> None:
        for how, reason in (("dies", "by peer"), ("late", "Timed out"),
                            ("fails", "by peer")):
            over = CONTEXT.Event()
            errors = run_ranks(2, lose_rank_1, how, over)
            self.assertRegex(errors[0][0], f"RuntimeError.*{reason}", how)
            self.assertIn("an earlier step has failed", errors[0][1], how)
            if how == "fails":
                self.assertEqual(errors[1][0], "OSError: the disk is gone")
                self.assertIn("an earlier step has failed", errors[1][1])

    def test_nan_is_an_error_everywhere_and_training_goes_on(self) -> None:
        # In its first step, ACCO estimates with 1, and commits with 1 and 2.
        cases = [("acco", 1), ("acco", 2), ("ddp", 2), ("acco", 5)]
        ranks = run_ranks(2, for_each, meet_nan, cases)
        for rank in ranks:
            for case, first, own in zip(cases, ranks[0], rank):
                (message, unchanged), = own["errors"]
                self.assertIn("gradient's norm nan", message)
                self.assertTrue(unchanged, case)
                self.assertEqual(own["steps"], 5)
                self.assertTrue(own["parameters"].isfinite().all())
                if case[1] <= 2:
                    self.assertTrue(
                        torch.equal(own["parameters"], own["fresh"]), case)
                self.assertTrue(
                    torch.equal(own["parameters"], first["parameters"]))

    def test_ranks_must_agree(self) -> None:
        for errors in run_ranks(2, disagree):
            self.assertIn("rank 1 has other trainable parameters", errors[0])
            self.assertIn("rank 1 has mode 'ddp', but rank 0 'acco'", errors[1])


class Replacing(torch.optim.SGD):
    """An optimizer that makes new tensors."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data = parameter.data - parameter.grad


class ArgumentsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        join_group(0, 1, cls.folder.name)

    @classmethod
    def tearDownClass(cls) -> None:
        dist.destroy_process_group()
        cls.folder.cleanup()

    def make(self, model: Any, **arguments: Any) -> Acco:
        arguments.setdefault("optimizer_class", torch.optim.SGD)
        return Acco(model, lr=0.1, **arguments)

    def test_arguments_are_checked(self) -> None:
        model = make_model("plain")
        with self.assertRaisesRegex(ValueError, "mode is 'acc'"):
            self.make(model, mode="acc")
        with self.assertRaisesRegex(ValueError, "micro_batches is 0"):
            self.make(model, micro_batches=0)
        with self.assertRaisesRegex(ValueError, "no trainable parameter"):
            self.make(make_model("plain").requires_grad_(False))
        with self.assertRaisesRegex(ValueError, "in several groups"):
            self.make([{"params": [model[0].weight]},
                       {"params": list(model.parameters())}])
        with self.assertRaisesRegex(TypeError, "of torch.float16"):
            self.make(make_model("plain").half())
        with self.assertRaisesRegex(ValueError, r"devices \(cpu, meta\)"):
            self.make([model[0].weight,
                       nn.Parameter(torch.empty(2, device="meta"))])
        with self.assertRaisesRegex(ValueError, "LBFGS does not treat each"):
            self.make(model, optimizer_class=torch.optim.LBFGS)

    def test_replaced_parameters_are_an_error(self) -> None:
        for replace in (lambda model: model.bfloat16(),
                        lambda model: model.append(nn.Linear(3, 3)),
                        lambda model: model[0].requires_grad_(False)):
            model = make_model("plain")
            acco = self.make(model)
            acco.step(Batches(model, 0))
            replace(model)
            with self.assertRaisesRegex(RuntimeError, "are others than when"):
                acco.step(Batches(model, 0))
        model = make_model("plain")
        acco = self.make(model)
        acco.optimizer.add_param_group(
            {"params": [nn.Parameter(torch.ones(3))]})
        with self.assertRaisesRegex(RuntimeError, "has other parameters"):
            acco.step(Batches(model, 0))

    def test_an_optimizer_that_replaces_tensors_is_an_error(self) -> None:
        model = make_model("plain")
        acco = self.make(model, optimizer_class=Replacing, mode="ddp")
        with self.assertRaisesRegex(RuntimeError, "Replacing has replaced"):
            acco.step(Batches(model, 0))

    def test_micro_batches_are_checked(self) -> None:
        model = make_model("plain")
        with self.assertRaisesRegex(RuntimeError, "must call backward"):
            self.make(model).step(lambda: torch.zeros(()))
        with self.assertRaisesRegex(ValueError, "returned 0 samples"):
            self.make(model).step(lambda: (torch.zeros(()), 0))

    def test_a_state_belongs_to_a_model_and_mode(self) -> None:
        model = make_model("plain")
        state = self.make(model).state_dict()
        with self.assertRaisesRegex(ValueError, "state's mode is acco"):
            self.make(model, mode="ddp").load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "state's fingerprint is"):
            self.make(make_model("tied")).load_state_dict(state)

    def test_one_rank_needs_no_other(self) -> None:
        model = make_model("plain")
        acco = self.make(model)
        losses = [acco.step(Batches(model, 0)).loss for _ in range(30)]
        self.assertLess(losses[-1], losses[0] / 2)


if __name__ == "__main__":
    unittest.main()
