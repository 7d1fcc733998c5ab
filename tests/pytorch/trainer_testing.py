# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of trainers as islands."""

import json
import time
from unittest import mock

import trainer_island

# pylint: disable=wrong-import-order
import torch

import causeway
from causeway.testing.processes import ProcessTestCase, free_port


class TrainerTestCase(ProcessTestCase):
    """Tests a function of trainer_island that trains a model of its own.

    function: its name.
    model: returns such a model.
    """

    function = ""
    model = None

    def begin(self, steps):
        return self.start_coordinator(
            self.create_run(self.model(), min_islands=1, total_steps=steps,
                            fragments=1))

    def settings(self, **settings):
        join = {"coordinator": self.address, "island": "east", "timeout": 60}
        return {"output": self.path("out"), "join": join, **settings}

    def train(self, **settings):
        """Trains in this process; returns the steps of the island."""
        function = getattr(trainer_island, self.function)
        return function(**self.settings(**settings))[0]

    def assert_stops_with_the_run(self, steps):
        coordinator = self.begin(20)
        self.assertEqual(self.train(), steps)
        self.assert_ends_well(coordinator)

    def losses_of_training(self, **settings):
        """Trains; returns the losses that the island reports."""
        with mock.patch.object(causeway.Island, "report", autospec=True,
                               side_effect=causeway.Island.report) as report:
            self.train(**settings)
        return [float(call.args[2]) for call in report.call_args_list]

    def train_two_ranks(self, code=0, **settings):
        """Trains as ranks of torchrun do; returns what the ranks say alike."""
        port = free_port()
        ranks = [
            self.fork(f"rank-{rank}", [trainer_island.__file__, self.function,
                                       json.dumps(self.settings(**settings))],
                      RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2,
                      LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=port, TORCHELASTIC_RUN_ID="none")
            for rank in range(2)]
        for rank in ranks:
            self.assert_ends_well(rank, code)
        events = [event for rank in ranks for event in rank.events()]
        self.assertEqual([event.pop("rank") for event in events],
                         [] if code else ["0", "1"])
        self.assertEqual(events[:1], events[1:])
        return events[0] if events else None

    def assert_run_gets(self, checksum):
        """Waits until the run's parameters have this checksum."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            model = self.model()
            island = causeway.join(self.address, island="east")
            island.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
            island.close()
            found = trainer_island.checksum(model)
            if abs(found - checksum) < 1e-3:
                return
        self.fail(f"the run has {found}, not {checksum}")
