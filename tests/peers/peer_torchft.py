#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A replica group of torchft, with one process.

PEER is "torchft" (DiLoCo of the whole model), "torchft-streaming" (DiLoCo of
five fragments, one at a time, 5 steps of overlap, and the quantized all-reduce
asked for) or "torchft-localsgd".
"""

import os
from datetime import timedelta

import torch
from torch import nn
from torch.distributed import TCPStore

from trial import OUTER, Trial

# pylint: disable=wrong-import-order,import-error
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo, LocalSGD

_PEER = os.environ["PEER"]


def make_manager(trial):
    host = os.environ["HOST"]
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False)

    def load_state_dict(state):
        trial.model.load_state_dict(state["model"])
        trial.optimizer.load_state_dict(state["optimizer"])

    def state_dict():
        return {"model": trial.model.state_dict(),
                "optimizer": trial.optimizer.state_dict()}

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=load_state_dict, state_dict=state_dict,
        min_replica_size=1, use_async_quorum=False, init_sync=False, rank=0,
        world_size=1, store_addr=host, store_port=store.port, hostname=host,
        lighthouse_addr=f"http://{os.environ['SERVER']}:29510",
        replica_id=f"worker_{trial.rank}")
    return store, manager


def diloco(trial, manager, fragments, **settings):
    outer = [torch.optim.SGD(fragment.parameters(), **OUTER)
             for fragment in fragments]
    return DiLoCo(manager, fragments, trial.optimizer, outer,
                  sync_every=trial.args.round, **settings)


def main():
    trial = Trial()
    store, manager = make_manager(trial)
    model = trial.model
    interval = trial.args.round
    if _PEER == "torchft-localsgd":
        sync = LocalSGD(manager, model, trial.optimizer, interval)
    elif _PEER == "torchft":
        sync = diloco(trial, manager, [model])
    else:
        fragments = [nn.ModuleList([model.wte, model.wpe, model.ln_f]),
                     *model.h]
        interval //= len(fragments)
        sync = diloco(trial, manager, fragments, should_quantize=True,
                      fragment_sync_delay=5)
    with sync:
        for batch in trial.batches():
            trial.backward(batch)
            trial.optimizer.step()
            trial.end_step()
            # A worker that is started again gets the others' state at a sync.
            if trial.step % interval == 1:
                trial.step = manager.current_step() * interval + 1
            if trial.step > trial.args.steps:
                break
        trial.finish()
    manager.shutdown(wait=False)
    del store


if __name__ == "__main__":
    main()
