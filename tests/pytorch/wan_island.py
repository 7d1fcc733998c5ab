#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""An island of PyTorch with the flags of causeway-worker that the WAN lab uses.

It trains the Llama of tests/reference, and sleeps for the rest of a step's
simulated time.
"""

import argparse
import os
import sys
import time

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
for _folder in ("python", "tests/pytorch", "tests/reference"):
    sys.path.insert(0, os.path.join(_ROOT, _folder))

# pylint: disable=wrong-import-position
import torch

import causeway
from llama_module import Llama, windows_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--island", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log_seconds", type=float, default=0)
    parser.add_argument("--simulated_step_seconds", type=float, default=0)
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    with causeway.join(flags.coordinator, island=flags.island,
                       verbose=2) as island:
        run = island.run
        windows = windows_of(flags.data, run.sequence_length)
        model = Llama(run)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        island.attach(model, optimizer)
        for batch in island.sampler(windows, batch_size=run.batch_size):
            begin = time.monotonic()
            optimizer.zero_grad()
            loss = model(windows[batch])
            loss.backward()
            island.report(tokens=run.batch_size * run.sequence_length,
                          loss=loss)
            rest = flags.simulated_step_seconds - (time.monotonic() - begin)
            time.sleep(max(0, rest))
            optimizer.step()
            if island.should_stop:
                break


if __name__ == "__main__":
    main()
