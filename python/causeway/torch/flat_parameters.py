# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A model's trainable parameters as one vector, cut into shards."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Union

import torch
from torch import Tensor, nn

# The parameters that torch.optim's optimizers take, or a whole model.
Parameters = Union[nn.Module, Iterable[Tensor], Iterable[dict[str, Any]]]


class FlatParameters:
    """The trainable parameters of a model, one after the other.

    It has tied parameters once, and no frozen ones. The vector is padded, so
    that each rank has a shard of the same length.

    Attributes:
        size: Values of the vector, without the padding.
        shard_size: Values of each rank's shard.
        padded_size: Values of all shards.
        groups: Options and slice of each of the optimizer's groups.
        rest: The frozen parameters and buffers of a model.
        device: The device of all parameters.
        dtype: The type of all parameters, or fp32 if they have several.
    """

    def __init__(self, parameters: Parameters, ranks: int) -> None:
        """Lays out `parameters` for this number of ranks.

        Raises:
            ValueError: Nothing is trainable, a parameter is in two groups, or
                parameters are on several devices.
            TypeError: A parameter is neither fp32 nor bf16.
        """
        self._model = parameters if isinstance(parameters, nn.Module) else None
        self._parameters: list[Tensor] = []
        self.groups: list[tuple[dict[str, Any], slice]] = []
        known: set[int] = set()
        begin = 0
        for group in _groups_of(parameters):
            options = dict(group)
            members = _trainable(options.pop("params"))
            if known.intersection(map(id, members)):
                raise ValueError("Acco: a parameter is in several groups")
            known.update(map(id, members))
            end = begin + sum(member.numel() for member in members)
            self._parameters += members
            self.groups.append((options, slice(begin, end)))
            begin = end
        self.size = begin
        self.shard_size = -(-self.size // ranks)
        self.padded_size = self.shard_size * ranks
        self._known = [_facts(member) for member in self._parameters]
        self.rest: list[Tensor] = []
        if self._model is not None:
            self.rest = [member for member in self._model.parameters()
                         if not member.requires_grad]
            self.rest += self._model.buffers()
        self._check_kinds()
        self.device = self._parameters[0].device
        dtypes = {member.dtype for member in self._parameters}
        self.dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32

    def _check_kinds(self) -> None:
        if self.size == 0:
            raise ValueError("Acco: the model has no trainable parameter")
        devices = {str(member.device) for member in self._parameters}
        if len(devices) > 1:
            raise ValueError(
                "Acco: parameters are on several devices "
                f"({', '.join(sorted(devices))}); move the model to one")
        for member in self._parameters:
            if member.dtype not in (torch.float32, torch.bfloat16):
                raise TypeError(
                    f"Acco: a parameter of shape {tuple(member.shape)} is of "
                    f"{member.dtype}; it must be of float32 or bfloat16")

    def fingerprint(self) -> int:
        """Returns a checksum of shapes, types and groups."""
        facts = [(tuple(member.shape), str(member.dtype))
                 for member in self._parameters + self.rest]
        bounds = [(where.start, where.stop) for _, where in self.groups]
        return zlib.crc32(repr((facts, bounds)).encode())

    def check_unchanged(self) -> None:
        """Raises RuntimeError if parameters were replaced or converted."""
        same = [_facts(member) for member in self._parameters] == self._known
        if self._model is not None:
            ours = set(map(id, self._parameters))
            same &= ours == set(map(id, _trainable(self._model.parameters())))
        if not same:
            raise RuntimeError(
                "Acco: the model's trainable parameters, their shapes, types "
                "or devices are others than when Acco was made; make a new "
                "one")

    def read(self, flat: Tensor) -> None:
        """Copies the parameters to a flat vector."""
        for member, view in self._with_views(flat):
            view.copy_(member.detach())

    def write(self, flat: Tensor) -> None:
        """Copies a flat vector to the parameters."""
        for member, view in self._with_views(flat):
            member.data.copy_(view)

    def clear_gradients(self) -> None:
        for member in self._parameters:
            member.grad = None

    def take_gradients(self, flat: Tensor, weight: float) -> None:
        """Adds the gradients times `weight` to a flat vector; clears them.

        Raises:
            RuntimeError: No parameter has a gradient.
        """
        found = False
        for member, view in self._with_views(flat):
            if member.grad is not None:
                view.add_(member.grad, alpha=weight)
                member.grad = None
                found = True
        if not found:
            raise RuntimeError("Acco: there is no gradient; micro_batch must "
                               "call backward() on its loss")

    def _with_views(self, flat: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        begin = 0
        for member in self._parameters:
            end = begin + member.numel()
            yield member, flat[begin:end].view(member.shape)
            begin = end


def _groups_of(parameters: Parameters) -> list[dict[str, Any]]:
    if isinstance(parameters, nn.Module):
        parameters = parameters.parameters()
    listed: list[Any] = list(parameters)
    if listed and isinstance(listed[0], dict):
        return listed
    return [{"params": listed}]


def _trainable(parameters: Union[Tensor, Iterable[Tensor]]) -> list[Tensor]:
    """Returns each parameter that requires a gradient once."""
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    unique = {id(member): member for member in parameters}
    return [member for member in unique.values() if member.requires_grad]


def _facts(parameter: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return parameter.shape, parameter.dtype, parameter.device
