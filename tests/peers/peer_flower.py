#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A client of Flower, whose server averages weights (FedAvg) after each round.

With SERVING it is the server. Both use the interface in which a client is one
long-lived process.
"""

import itertools
import os

import torch

from trial import Trial

# pylint: disable=wrong-import-order,import-error
from flwr.client import NumPyClient, start_client
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg

_ADDRESS = f"{os.environ['SERVER']}:9092"


class Client(NumPyClient):

    def __init__(self, trial):
        self._trial = trial

    def get_parameters(self, config):
        return [p.detach().numpy() for p in self._trial.model.parameters()]

    @torch.no_grad()
    def set_parameters(self, values):
        for parameter, value in zip(self._trial.model.parameters(), values):
            parameter.copy_(torch.from_numpy(value))

    def fit(self, parameters, config):
        trial = self._trial
        self.set_parameters(parameters)
        trial.step = (config["round"] - 1) * trial.args.round + 1
        if trial.step > trial.args.steps:
            trial.finish()
        else:
            trial.snapshot()
        for batch in itertools.islice(trial.batches(), trial.args.round):
            trial.backward(batch)
            trial.optimizer.step()
            trial.end_step(merged=None)
        return self.get_parameters(config), trial.tokens, {}


def main():
    trial = Trial()
    if "SERVING" not in os.environ:
        start_client(server_address=_ADDRESS, client=Client(trial).to_client())
        return
    # In one more round the clients only receive the last model.
    start_server(
        server_address=_ADDRESS,
        config=ServerConfig(
            num_rounds=trial.args.steps // trial.args.round + 1),
        strategy=FedAvg(
            fraction_evaluate=0.0, min_fit_clients=trial.world,
            min_available_clients=trial.world,
            on_fit_config_fn=lambda number: {"round": number}))


if __name__ == "__main__":
    main()
