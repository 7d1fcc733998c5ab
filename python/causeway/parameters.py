# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Matches the tensors of a PyTorch module with those of a run."""

import itertools
from dataclasses import dataclass, field
from typing import Any, Collection, Dict, List, Optional, Tuple

import torch

from .errors import InvalidArgument, ModelMismatch
from .joined_run import Run, TensorInfo

# The parts that wrappers add to the names of parameters.
_WRAPPERS = {
    "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"
}
# The most differences that a message lists.
_MOST_LISTED = 5


@dataclass
class Slot:
    """A parameter, and where its module keeps it."""

    parameter: torch.nn.Parameter
    # The parameter is owner[key].
    owner: Dict[str, Any]
    key: str
    # The names that the model has for it; more than one if it is tied.
    names: List[str] = field(default_factory=list)


def plain_name(name: str) -> str:
    """Returns a name without the parts that wrappers have added."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def check_module(model: Any) -> None:
    """Raises InvalidArgument if `model` is no module."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(
            f"the model is of type {type(model).__name__}; it is a "
            "torch.nn.Module")


def unwrapped(model: Any) -> Any:
    """Returns the module inside DataParallel, DDP and torch.compile."""
    parallel = (torch.nn.DataParallel,
                torch.nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(model, parallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model._modules["_orig_mod"]
        else:
            return model


def shards_itself(module: torch.nn.Module) -> bool:
    """Returns whether FSDP2 shards this module's parameters."""
    return hasattr(module, "unshard")


def reshard(model: torch.nn.Module) -> None:
    """Makes FSDP2 keep only this rank's parts of parameters in the model.

    It keeps whole copies after some forward passes, and uses them in the next.
    """
    for module in model.modules():
        if shards_itself(module):
            module.reshard()  # type: ignore[operator]


def slots_of(model: torch.nn.Module) -> List[Slot]:
    """Returns the model's parameters, each once, in the model's order."""
    found: Dict[int, Slot] = {}
    modules = unwrapped(model).named_modules(remove_duplicate=False)
    for prefix, module in modules:
        for key, parameter in module._parameters.items():
            if parameter is None:
                continue
            slot = found.setdefault(id(parameter),
                                    Slot(parameter, module._parameters, key))
            slot.names.append(plain_name(f"{prefix}.{key}" if prefix else key))
    return list(found.values())


def _listed(problems: List[str]) -> str:
    shown = problems[:_MOST_LISTED]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more differences")
    return "; ".join(shown)


def _shape(shape: Collection[int]) -> str:
    return "[" + ", ".join(str(extent) for extent in shape) + "]"


def _part_of_run(names: Collection[str], run: Run) -> Optional[str]:
    """Returns the part of the model, such as "network", that has the run's
    tensors, if there is one."""
    first = "." + run.tensors[0].name
    for name in names:
        part = name[:-len(first)]
        if name.endswith(first) and all(f"{part}.{tensor.name}" in names
                                        for tensor in run.tensors):
            return part
    return None


def match(model: torch.nn.Module, run: Run,
          shards: Collection[str] = ()) -> List[Tuple[TensorInfo, Slot]]:
    """Returns the run's tensors, each with the model's parameter.

    Parameters that do not require gradients, and excluded ones, may be missing
    in the run. Does not compare the extents of parameters in `shards`. The run
    may have the names of PEFT's files for an adapter.

    Raises ModelMismatch, which names the first differences.
    """
    slots = slots_of(model)
    by_name = {name: slot for slot in slots for name in slot.names}
    if any(tensor.name not in by_name for tensor in run.tensors):
        from .adapters import run_slots
        by_name.update(run_slots(model, slots))
    problems: List[str] = []
    pairs: List[Tuple[TensorInfo, Slot]] = []
    taken: Dict[int, str] = {}
    for tensor in run.tensors:
        slot = by_name.get(tensor.name)
        if slot is None:
            problems.append(
                f"the model has no parameter {tensor.name} "
                f"{_shape(tensor.shape)}")
            continue
        other = taken.setdefault(id(slot), tensor.name)
        if other != tensor.name:
            problems.append(f"the model ties {other} and {tensor.name}, which "
                            "are two tensors in the run")
        # A scalar is a tensor of one value.
        shape = tuple(slot.parameter.shape)
        if (tensor.name not in shards and shape != tensor.shape
                and (shape, tensor.shape) != ((), (1,))):
            problems.append(
                f"{tensor.name} is {_shape(shape)} in the model and "
                f"{_shape(tensor.shape)} in the run")
        pairs.append((tensor, slot))
    extra: List[str] = []
    for slot in slots:
        if (id(slot) not in taken and slot.parameter.requires_grad
                and not any(run.excludes(name) for name in slot.names)):
            extra.append(
                f"the run has no tensor {slot.names[0]} "
                f"{_shape(slot.parameter.shape)}, which the model trains")
    if problems or extra:
        part = None if pairs else _part_of_run(by_name, run)
        if part is not None:
            raise ModelMismatch(
                f"the tensors of run {run.name} are those of model.{part}: "
                f'attach that (Lightning: module="{part}")')
        mixed = itertools.chain(*itertools.zip_longest(problems, extra))
        raise ModelMismatch(f"the model is not that of run {run.name}: "
                            f"{_listed(list(filter(None, mixed)))}")
    return pairs
