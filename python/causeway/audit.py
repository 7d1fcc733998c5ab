# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Computes a gradient that other ranks compute too, for a comparison of bits,
as worker/training/gradient_audit.h does for native islands."""

import contextlib
import hashlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from .attachment import Attachment
from .creation import raw_bytes
from .errors import InvalidArgument, Unimplemented
from .parameters import reshard, shards_itself, unwrapped


def _digest(tensor: torch.Tensor) -> bytes:
    values = tensor.detach().cpu().contiguous()
    return hashlib.sha256(raw_bytes(values)).digest()


class _Leaf:
    """The tensor that the model uses for a parameter: the parameter itself, or
    the whole tensor that FSDP2 gathers.

    values, gradient: digests.
    """

    def __init__(self, tensor: Any, is_gathered: bool):
        self.tensor = tensor
        self.is_gathered = is_gathered
        self.values = _digest(tensor)
        self.gradient: Optional[bytes] = None

    def drop(self, gradient: torch.Tensor) -> torch.Tensor:
        """Keeps the digest of a gradient. Returns zeros of its shape in the
        memory of one value."""
        self.gradient = _digest(gradient)
        return gradient.new_zeros(()).expand_as(gradient)


def _leaves(attachment: Attachment) -> List[_Leaf]:
    """Returns the leaves of the run's parameters that require gradients.

    Gathers what FSDP2 has sharded, one module at a time. Raises Unimplemented
    for other parts.
    """
    leaves: Dict[int, _Leaf] = {}
    missing = {}
    for index, local in enumerate(attachment.locals):
        if not local.slot.parameter.requires_grad:
            continue
        if local.whole:
            leaves[index] = _Leaf(local.slot.parameter, False)
        else:
            missing[index] = local.slot
    for module in attachment.model.modules():
        if not missing or not shards_itself(module):
            continue
        module.unshard()  # type: ignore[operator]
        for index, slot in list(missing.items()):
            tensor = slot.owner[slot.key]
            # A gathered tensor may still be a part in another dimension.
            if (tensor is not slot.parameter
                    and not hasattr(tensor, "to_local")):
                leaves[index] = _Leaf(tensor, True)
                del missing[index]
        module.reshard()  # type: ignore[operator]
    for slot in missing.values():
        raise Unimplemented(
            f"ranks have parts of {slot.names[0]}, which FSDP2 (fully_shard) "
            "does not gather, so none of them computes its gradient alone: "
            "there are no audits with tensor parallelism, FSDP1 and the "
            "argument `shards` of attach()")
    return [leaves[index] for index in sorted(leaves)]


@contextlib.contextmanager
def _without_sync(model: torch.nn.Module) -> Iterator[None]:
    """Keeps FSDP2 from reducing gradients, new or accumulated."""
    groups: List[Any] = []
    for module in model.modules():
        if shards_itself(module):
            state: Any = module._get_fsdp_state()  # type: ignore[operator]
            # Older versions have one group at most.
            groups += getattr(state, "_fsdp_param_groups",
                              None) or [state._fsdp_param_group]
    groups = [group for group in groups if group is not None]
    before = [(group.reduce_grads, group.all_reduce_grads) for group in groups]
    for group in groups:
        group.reduce_grads = group.all_reduce_grads = False
    try:
        yield
    finally:
        for group, values in zip(groups, before):
            group.reduce_grads, group.all_reduce_grads = values


@contextlib.contextmanager
def _unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Restores buffers and random numbers after this block, in which all ranks
    draw the same random numbers."""
    buffers = [(buffer.detach(), buffer.detach().clone())
               for buffer in module.buffers()]
    # fork_rng() would fork all visible devices, and warn of several.
    devices = {parameter.device for parameter in module.parameters()
               if parameter.device.type == "cuda"}
    try:
        with torch.enable_grad(), torch.random.fork_rng(list(devices)):
            torch.manual_seed(0)
            yield
    finally:
        for buffer, values in buffers:
            buffer.copy_(values)


def audited(attachment: Attachment,
            compute_loss: Callable[[Any, Any], torch.Tensor],
            batch: Any) -> Tuple[str, str]:
    """Returns digests of the run's parameters, and of the gradient of a batch's
    loss there.

    Leaves gradients, buffers, and the state of torch's random numbers as they
    are. The gradient bypasses DDP, which would wait for other ranks. FSDP2
    gathers parameters with all ranks; each rank computes the whole gradient and
    keeps only its digest.

    Raises Unimplemented, or InvalidArgument if there is no gradient.
    """
    module = unwrapped(attachment.model)
    try:
        leaves = _leaves(attachment)
        with _unchanged(module), _without_sync(attachment.model):
            loss = compute_loss(module, batch)
            # A whole gradient may not fit where the model is sharded.
            handles = [leaf.tensor.register_hook(leaf.drop)
                       for leaf in leaves if leaf.is_gathered]
            try:
                gradients = torch.autograd.grad(
                    loss, [leaf.tensor for leaf in leaves], allow_unused=True)
            finally:
                for handle in handles:
                    handle.remove()
    finally:
        reshard(attachment.model)
    for leaf, gradient in zip(leaves, gradients):
        if gradient is not None and leaf.gradient is None:
            leaf.gradient = _digest(gradient)
    if not any(leaf.gradient for leaf in leaves):
        raise InvalidArgument("the loss of an audit depends on no parameter of "
                              "the run: compute_loss uses another model than "
                              "it is given")
    return (_digest_of_all([leaf.values for leaf in leaves]),
            _digest_of_all([leaf.gradient for leaf in leaves]))


def _digest_of_all(digests: List[Optional[bytes]]) -> str:
    # Zeros keep the places of unused parameters.
    return hashlib.sha256(b"".join(digest or bytes(32)
                                   for digest in digests)).hexdigest()
