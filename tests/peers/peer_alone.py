#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A worker without connections to others."""

from trial import Trial


def main():
    trial = Trial()
    for batch in trial.batches():
        trial.backward(batch)
        trial.optimizer.step()
        trial.end_step()
    trial.finish()


if __name__ == "__main__":
    main()
