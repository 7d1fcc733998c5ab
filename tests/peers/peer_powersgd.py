#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Data parallel training by DDP, with gradients that PowerSGD compresses."""

from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trial import Trial


def main():
    trial = Trial()
    distributed.init_process_group("gloo", rank=trial.rank,
                                   world_size=trial.world)
    # All gradients in one bucket: with two, the hook waits for ever in Gloo.
    replica = DistributedDataParallel(trial.model, bucket_cap_mb=100)
    # Rank 1, and whole gradients in the first steps, as the manual advises.
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1,
                                        start_powerSGD_iter=10)
    replica.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for batch in trial.batches():
        trial.backward(batch, replica)
        trial.optimizer.step()
        trial.end_step()
    trial.finish()


if __name__ == "__main__":
    main()
