# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Computes a gradient that other ranks compute, too, and compares the bits, as
worker/training/gradient_audit.h does for native islands."""

import hashlib
from typing import Any, Callable, Iterable, Optional, Tuple

import torch

from .attachment import Attachment
from .creation import raw_bytes
from .errors import Unimplemented
from .parameters import unwrapped


def _digest(tensors: Iterable[Optional[torch.Tensor]]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(raw_bytes(tensor.detach().cpu().contiguous()))
    return digest.hexdigest()


def audited(attachment: Attachment,
            compute_loss: Callable[[Any, Any], torch.Tensor],
            batch: Any) -> Tuple[str, str]:
    """Returns digests of the run's parameters, and of the gradient of a batch's
    loss there.

    Leaves gradients, buffers, and the state of torch's random numbers as they
    are. The gradient does not go through DDP, which would wait for other ranks.

    Raises Unimplemented.
    """
    if not all(local.whole for local in attachment.locals):
        raise Unimplemented("ranks that have parts of the parameters compute "
                            "no gradient alone, so they have no audits")
    module = unwrapped(attachment.model)
    parameters = [local.slot.parameter for local in attachment.locals
                  if local.slot.parameter.requires_grad]
    buffers = [(buffer.detach(), buffer.detach().clone())
               for buffer in module.buffers()]
    try:
        with torch.enable_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            gradient = torch.autograd.grad(compute_loss(module, batch),
                                           parameters, allow_unused=True)
    finally:
        for buffer, values in buffers:
            buffer.copy_(values)
    return _digest(parameters), _digest(gradient)
