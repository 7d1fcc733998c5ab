# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands whose models PyTorch 2 shards or compiles."""

import json
import os
import sys
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

    def start_ranks(self, name, kind, ranks=1, **settings):
        """Starts the ranks of an island."""
        settings.update(
            kind=kind, ranks=ranks,
            # Each group has a file of its own.
            group_file=self.path(f"group-{name}-{self._runs}"),
            join={"coordinator": self.address, "island": name,
                  "verbose": True})
        return [
            self.start(name, [sys.executable, _PROGRAM,
                              json.dumps(dict(settings, rank=rank))])
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
