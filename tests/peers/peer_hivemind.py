#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A peer of hivemind: local steps, and parameters averaged in the background.

INITIAL_PEER is the address of hivemind-dht, the swarm's first peer.
"""

import os

from trial import Trial

# pylint: disable=wrong-import-order,import-error
import hivemind


def main():
    trial = Trial()
    args = trial.args
    dht = hivemind.DHT(initial_peers=[os.environ["INITIAL_PEER"]],
                       host_maddrs=[f"/ip4/{os.environ['HOST']}/tcp/0"],
                       start=True)
    optimizer = hivemind.Optimizer(
        dht=dht, run_id="peers", optimizer=trial.optimizer,
        batch_size_per_step=args.batch,
        target_batch_size=args.batch * args.round * trial.world,
        use_local_updates=True, delay_state_averaging=True,
        matchmaking_time=3.0, averaging_timeout=30.0, verbose=True)
    for batch in trial.batches():
        trial.backward(batch)
        optimizer.step()
        trial.end_step()
        # A worker that is started again has the others' state.
        if optimizer.local_epoch * args.round > trial.step + args.round:
            trial.step = optimizer.local_epoch * args.round
        if trial.step > args.steps:
            break
    trial.finish()
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
