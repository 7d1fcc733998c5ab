# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Audits of ranks whose model FSDP2 shards.

With arguments it is one of these ranks.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import distributed
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from causeway.attachment import Attachment
from causeway.audit import audited
from causeway.errors import InvalidArgument, Unimplemented
from causeway.parameters import reshard, slots_of
from causeway.testing.least_squares import run_of

_STEPS = 6
BATCH = torch.arange(24.0).reshape(4, 6) / 24


class Model(torch.nn.Module):
    """Has all that an audit may disturb, and a parameter without a use."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.3))
            for _ in range(3))
        self.head = torch.nn.Linear(6, 5)
        self.unused = torch.nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(()))
        self.frozen = torch.nn.Parameter(torch.ones(5), requires_grad=False)

    def forward(self, inputs):
        self.mean += 0.1 * (inputs.float().mean() - self.mean)
        for block in self.blocks:
            inputs = checkpoint(block, inputs, use_reentrant=False)
        return self.head(inputs) * self.frozen


def make_model():
    torch.manual_seed(1)
    return Model()


def loss_of(model, batch):
    return model(batch).float().square().mean()


def sharded(kind):
    """Returns a model that is sharded in this way."""
    size = distributed.get_world_size()
    mesh, names, options = (size,), ("shard",), {}
    if kind == "kept":
        options["reshard_after_forward"] = False
    if kind == "replicated":
        mesh, names = (2, size // 2), ("replicate", "shard")
    if kind == "mixed":
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = distributed.device_mesh.init_device_mesh("cpu", mesh,
                                                    mesh_dim_names=names)
    model = make_model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def attached(model):
    return Attachment(model, run_of({
        slot.names[0]: tuple(slot.parameter.shape) for slot in slots_of(model)
        if slot.parameter.requires_grad}))


def bits_of(tensor):
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    return tensor.detach().float().view(torch.int32).tolist()


def train(kind, rank, audits):
    """Returns the bits of all that training changes, and of audits."""
    model = sharded(kind)
    attachment = attached(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    found = []

    def audit(batch):
        if audits:
            found.append(audited(attachment, loss_of, batch))
            assert all(hasattr(parameter, "to_local")
                       for parameter in model.parameters())

    for step in range(_STEPS):
        # Parts of a step are accumulated on each rank, and others after their
        # reduction. FSDP2 then has whole gradients, parts, and both.
        for part in range(4):
            is_synced = part in (1, 3)
            model.set_requires_gradient_sync(is_synced)
            model.set_is_last_backward(is_synced)
            model.set_reshard_after_backward(kind != "kept" or is_synced)
            audit(BATCH + step + part)
            loss_of(model, torch.randn(4, 6)).backward()
            assert all(group.reduce_grads == is_synced for group in
                       model._get_fsdp_state()._fsdp_param_groups)
        # A pass that is not followed by another may leave whole parameters.
        with torch.no_grad():
            model(BATCH)
        audit(BATCH)
        # PyTorch would compute the next step with what is whole now.
        reshard(model)
        optimizer.step()
        optimizer.zero_grad()
    state = [*model.state_dict().values(), torch.get_rng_state(),
             *(value for values in optimizer.state.values()
               for value in values.values())]
    return {"state": list(map(bits_of, state)), "audits": found}


def refused(rank):
    """Returns the errors of audits that cannot be made."""
    from torch.distributed.tensor import parallel
    size = distributed.get_world_size()
    model = sharded("")
    errors = []
    try:
        audited(attached(model), lambda _, batch: loss_of(make_model(), batch),
                BATCH)
    except InvalidArgument as error:
        errors.append(str(error))
    grid = distributed.device_mesh.init_device_mesh(
        "cpu", (1, size), mesh_dim_names=("data", "tensor"))
    for shards in (False, True):
        model = parallel.parallelize_module(
            make_model(), grid["tensor"], {"head": parallel.ColwiseParallel()})
        attachment = attached(model)
        if shards:
            fully_shard(model, mesh=grid["data"])
        try:
            audited(attachment, loss_of, BATCH)
        except Unimplemented as error:
            errors.append(str(error))
    return errors


def main(rank, ranks, group_file, *kinds):
    torch.set_num_threads(1)
    rank = int(rank)
    distributed.init_process_group(
        "gloo", init_method=f"file://{group_file}", rank=rank,
        world_size=int(ranks), timeout=datetime.timedelta(seconds=60))
    # Print once, at the end: others would wait for a rank that fills the pipe.
    print(json.dumps([
        refused(rank) if kind == "refused" else
        [train(kind, rank, audits) for audits in (False, True)]
        for kind in kinds
    ]), flush=True)
    # Gloo's threads do not end in order.
    os._exit(0)


def start(ranks, *kinds):
    """Returns what all ranks say, for each of these kinds."""
    with tempfile.TemporaryDirectory(
            dir=os.environ.get("TEST_TMPDIR")) as folder:
        processes = [
            subprocess.Popen([
                sys.executable, "-m", __spec__.name, str(rank), str(ranks),
                os.path.join(folder, "group"), *kinds
            ], stdout=subprocess.PIPE, text=True) for rank in range(ranks)
        ]
        output = [process.communicate()[0] for process in processes]
    codes = [process.returncode for process in processes]
    assert codes == [0] * ranks, codes
    return list(zip(*map(json.loads, output)))


class ShardedAuditTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # A process takes seconds to start.
        cls.plain_pair, cls.mixed_pair, cls.refusals = start(
            2, "plain", "mixed", "refused")

    def check(self, trained):
        """Compares training with and without audits. Returns the audits."""
        plain, with_audits = zip(*trained)
        for one, other in zip(plain, with_audits):
            self.assertEqual(one["state"], other["state"])
        self.assertNotEqual(plain[0]["state"], plain[1]["state"])
        audits = with_audits[0]["audits"]
        for other in with_audits[1:]:
            self.assertEqual(other["audits"], audits)
        self.assertEqual(len(set(values for values, _ in audits)), _STEPS)
        # The first and the last audit of the first step see the same gradient.
        self.assertEqual(len(set(gradient for _, gradient in audits)),
                         5 * _STEPS - 1)
        return audits

    def test_two_ranks(self):
        audits = self.check(self.plain_pair)
        # It is what a rank with the whole model computes.
        self.assertEqual(
            tuple(audits[0]), audited(attached(make_model()), loss_of, BATCH))

    def test_three_ranks_that_keep_whole_parameters(self):
        self.check(*start(3, "kept"))

    def test_ranks_that_replicate_parts(self):
        self.check(*start(4, "replicated"))

    def test_parameters_of_another_type(self):
        self.check(self.mixed_pair)

    def test_says_why_it_cannot_be_made(self):
        for errors in self.refusals:
            self.assertEqual(len(errors), 3)
            self.assertIn("depends on no parameter", errors[0])
            for error in errors[1:]:
                self.assertIn("ranks have parts of head.weight", error)


if __name__ == "__main__":
    if len(sys.argv) > 4:
        main(*sys.argv[1:])
    else:
        unittest.main()
