# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Runs with one island, for tests.

Needs what processes.py does.
"""

import contextlib

import torch

import causeway
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import ProcessTestCase


class OneIslandTestCase(ProcessTestCase):
    """A test with an island in its own process."""

    def setUp(self):
        super().setUp()
        self.model = LeastSquares()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.4)

    def join(self, **fields):
        return causeway.join(self.address, island="east", timeout=60, **fields)

    def begin(self, model=None, **run):
        self.start_coordinator(
            self.create_run(model or self.model, min_islands=1, **run))

    @contextlib.contextmanager
    def attached(self, **run):
        self.begin(**run)
        with self.join() as island:
            island.attach(self.model, self.optimizer)
            yield island

    def values(self):
        return [p.detach().clone() for p in self.model.parameters()]

    def assert_values(self, expected):
        for a, b in zip(self.model.parameters(), expected):
            self.assertTrue(torch.equal(a, b))

    def step(self):
        self.optimizer.zero_grad()
        self.model(0, 1).backward()
        self.optimizer.step()
