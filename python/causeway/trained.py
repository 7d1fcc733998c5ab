# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The set of parameters that optimizers train, which is fixed from attach()
on."""

import itertools
from typing import Any, Iterator, List, Sequence

import torch

from .attachment import Attachment
from .errors import InvalidArgument, ModelMismatch
from .parameters import slots_of
from .joined_run import Run

# The number of frozen parameters that are checked before each step, in turn.
_FROZEN_PER_STEP = 8


def torch_optimizers(given: Any) -> List[Any]:
    """Returns the optimizers that were passed to attach(), one or a list,
    without the wrappers of accelerate or Lightning.

    Raises InvalidArgument for anything else.
    """
    optimizers = []
    listed = given if isinstance(given, (list, tuple)) else [given]
    for optimizer in listed or [None]:
        while hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        if not (hasattr(optimizer, "param_groups")
                and callable(getattr(optimizer, "step", None))):
            raise InvalidArgument(
                f"the optimizer is {optimizer!r}; attach() takes the "
                "torch.optim.Optimizer that trains the model, or a list")
        optimizers.append(optimizer)
    return optimizers


class Trained:
    """Notices parameters that only this island would train."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer],
                 attachment: Attachment, model: torch.nn.Module, run: Run):
        """Raises ModelMismatch if the optimizers train no parameter of the
        model."""
        self._optimizers, self._model, self._run = optimizers, model, run
        attached = {id(local.slot.parameter) for local in attachment.locals}
        parameters = list(self._parameters())
        self._count = len(parameters)
        self._known = {id(parameter) for parameter in parameters}
        if not attached & self._known:
            raise ModelMismatch(
                "the optimizer trains no parameter of the model: make it from "
                "model.parameters(), after model.to() and fully_shard(), and "
                "before a forward pass")
        self._frozen = [
            parameter for parameter in parameters
            if id(parameter) not in attached and not parameter.requires_grad
        ]
        self._next_frozen = itertools.cycle(self._frozen)

    def _parameters(self) -> Iterator[torch.Tensor]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]

    def check(self) -> None:
        """Raises ModelMismatch if an optimizer trains parameters that were
        added since, or, after some calls, that are no longer frozen."""
        # It is called before each step, so it is brief.
        count = 0
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                count += len(group["params"])
        if count != self._count:
            for parameter in self._parameters():
                if id(parameter) not in self._known:
                    self._refuse(parameter, "was added to the optimizer")
        for parameter in itertools.islice(self._next_frozen, _FROZEN_PER_STEP):
            if parameter.requires_grad:
                self._refuse(parameter, "is no longer frozen")

    def _refuse(self, parameter: torch.Tensor, what: str) -> None:
        name = f"a parameter of shape {list(parameter.shape)}"
        for slot in slots_of(self._model):
            if slot.parameter is parameter:
                name = slot.names[0]
                if any(self._run.excludes(other) for other in slot.names):
                    return
        raise ModelMismatch(
            f"{name} {what} after island.attach(), so only this island would "
            "train it: do that before attach(), in a run that has the tensor "
            "or excludes it")
