# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands whose models PyTorch 2 shards or compiles."""

import json
import os
import re
import unittest

from parallel_island import Regression

from causeway.testing.processes import ProcessTestCase

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "parallel_island.py")


class ParallelTest(ProcessTestCase):

    def begin(self, **fields):
        return self.start_coordinator(
            self.create_run(Regression(), fragments=2, block=["layers.#."],
                            **fields))

    def start_ranks(self, name, kind, ranks=1, wrong=None, **settings):
        """Starts the ranks of an island; `wrong` has settings of single
        ones."""
        settings.update(
            kind=kind, ranks=ranks,
            # Each group has a file of its own.
            group_file=self.path(f"group-{name}-{self._runs}"),
            join={"coordinator": self.address, "island": name,
                  "verbose": True})
        return [
            self.fork(name, [_PROGRAM,
                             json.dumps(dict(settings, rank=rank,
                                             **(wrong or {}).get(rank, {})))])
            for rank in range(ranks)
        ]

    def train_two(self, east, west, error=1e-3):
        """Trains two islands, each given as kind and ranks."""
        coordinator = self.begin()
        processes = (self.start_ranks("east", *east, part=0) +
                     self.start_ranks("west", *west, part=1))
        for process in processes:
            self.assert_ends_well(process)
            self.assertLess(process.wait_for("end")["merged_error"], error)
        self.assert_ends_well(coordinator)

    def test_fsdp(self):
        self.train_two(("fsdp", 2), ("fsdp_kept", 2), 0.02)

    def test_meshes(self):
        self.train_two(("hsdp", 4), ("tensor_parallel", 2))

    def test_compiled(self):
        self.train_two(("compiled",), ("compiled_optimizer",))

    def audit(self, kind, ranks):
        """Trains an island whose rank 1 computes wrong gradients from step 11
        on. Returns the error of all ranks and the events."""
        self.begin(min_islands=1, total_steps=100000)
        east = self.start_ranks("east", kind, ranks, audit=5,
                                wrong={1: {"wrong_from": 11}})
        for rank in east:
            self.assertEqual(rank.wait(), 1, rank.output())
        errors = {error for rank in east for error in
                  re.findall("causeway.errors.DataLoss: .*", rank.output())}
        self.assertEqual(len(errors), 1, east[0].output())
        return errors.pop(), self.tool("events", "--coordinator", self.address)

    def test_an_audit_names_the_rank_that_computes_wrong_gradients(self):
        error, events = self.audit("fsdp", 3)
        self.assertIn("rank 1", error)
        self.assertRegex(events, "rank_corrupt .*east.*rank 1")

    def test_an_audit_of_two_ranks_says_that_they_differ(self):
        error, events = self.audit("fsdp_kept", 2)
        self.assertIn("{0} {1}; which of them are wrong is not known", error)
        self.assertNotIn("rank_corrupt", events)

    def test_a_distributed_checkpoint_has_the_island_s_state(self):
        self.begin(min_islands=1)
        checkpoint = self.path("checkpoint")
        # No fragment is in flight after this step, so that nothing changes
        # while the island is away.
        first = self.start_ranks("east", "fsdp", 2, save_step=38,
                                 checkpoint=checkpoint)
        for rank in first:
            self.assert_ends_well(rank)
        saved = first[0].wait_for("saved")["error"]
        for rank in self.start_ranks("east", "fsdp", 2,
                                     checkpoint=checkpoint):
            attached = rank.wait_for("attached")
            self.assertEqual(attached["step"], 38)
            self.assertAlmostEqual(attached["error"], saved, places=6)
            self.assert_ends_well(rank)


if __name__ == "__main__":
    unittest.main()
