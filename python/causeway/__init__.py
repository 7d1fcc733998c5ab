# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains one model on several clusters with slow links between them.

    import causeway

    with causeway.join("coordinator:7070", island="east", tls="tls") as island:
        island.attach(model, optimizer)
        for batch in loader:
            loss = train(batch)
            island.report(tokens=batch.numel(), loss=loss)
            optimizer.step()
            if island.should_stop:
                break

docs/pytorch.md is the manual. Importing this package does not need PyTorch.
"""

from .creation import RunFiles, create_run
from .errors import (DataLoss, Diverged, Error, Internal, InvalidArgument, Left,
                     ModelMismatch, NameTaken, NotFound, PermissionDenied,
                     RankFailed, ResourceExhausted, RunFinished, RunMismatch,
                     TensorMoved, Timeout, Unauthenticated, Unavailable,
                     Unimplemented)
from .island import Island
from .joining import join
from .joined_run import Run, TensorInfo
from .sampler import Sampler

__version__ = "0.1"

__all__ = [
    "DataLoss", "Diverged", "Error", "Internal", "InvalidArgument", "Island",
    "Left", "ModelMismatch", "NameTaken", "NotFound", "PermissionDenied",
    "RankFailed", "ResourceExhausted", "Run", "RunFiles", "RunFinished",
    "RunMismatch", "Sampler", "TensorInfo", "TensorMoved", "Timeout",
    "Unauthenticated", "Unavailable", "Unimplemented", "create_run", "join"
]
