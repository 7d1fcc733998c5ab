#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A worker that is an island of Causeway, as docs/pytorch.md says.

With CREATE_RUN, writes the run's files into that folder instead.
"""

import os

from trial import OUTER, Trial

# pylint: disable=wrong-import-order
import causeway


def create_run(trial, folder):
    args = trial.args
    causeway.create_run(
        trial.model, folder, name="peers", total_steps=args.steps,
        batch_size=args.batch, sequence_length=args.length,
        inner_steps_per_round=args.round, fragments=5, overlap_steps=5,
        outer_learning_rate=OUTER["lr"], outer_momentum=OUTER["momentum"],
        format="INT4", merge="MEAN", min_islands=trial.world,
        max_islands=trial.world)


def train(trial):
    with causeway.join() as island:
        island.attach(trial.model, trial.optimizer)
        for batch in trial.batches(
                island.sampler(trial.data, trial.args.batch)):
            trial.step = island.step
            loss = trial.backward(batch)
            island.report(tokens=trial.tokens, loss=loss)
            trial.optimizer.step()
            trial.end_step(island.merged_weights)
            if island.should_stop:
                break
        trial.finish()


def main():
    trial = Trial()
    if "CREATE_RUN" in os.environ:
        create_run(trial, os.environ["CREATE_RUN"])
    else:
        train(trial)


if __name__ == "__main__":
    main()
