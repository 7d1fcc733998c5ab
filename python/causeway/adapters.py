# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Runs of a model's trainable tensors, such as an adapter's.

Frozen tensors are never sent. Instead, every island compares their digest with
the run's. The digest is in the name of an excluded tensor without values, so
both the islands' configuration and the first checkpoint have it. The
coordinator refuses to begin a run if the two do not match.
"""

import collections
import hashlib
import logging
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import (Any, Callable, Collection, Deque, Dict, Iterator, List,
                    Sequence, Tuple)

import torch

from .creation import raw_bytes
from .errors import InvalidArgument, ModelMismatch
from .parameters import Slot, plain_name, slots_of, unwrapped
from .joined_run import FROZEN, Run

_log = logging.getLogger("causeway")

# The parts that only PEFT adds to the names of adapted tensors.
_ADAPTED = {"base_layer", "original_module"}
# The threads that hash values, each about 1 GB/s.
_THREADS = 4


def _entries(model: Any) -> Dict[str, torch.Tensor]:
    """Returns a model's saved parameters and buffers, and the parts of
    quantized ones."""
    state = unwrapped(model).state_dict(keep_vars=True)
    return {plain_name(name): value for name, value in state.items()
            if isinstance(value, torch.Tensor)}


def is_peft(model: Any) -> bool:
    """Returns whether this is a PeftModel."""
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(model, peft.PeftModel)


def active_adapter(model: Any) -> str:
    """Returns the name of the adapter that a PeftModel trains.

    Raises InvalidArgument if there is not exactly one.
    """
    names = list(model.active_adapters)
    if len(names) != 1:
        raise InvalidArgument(
            f"the model has {len(names)} active adapters "
            f"({', '.join(names)}), and a run has one: make one of them active "
            "with model.set_adapter(name), the others may stay")
    return str(names[0])


def _saved(model: Any, adapter: str) -> Dict[str, torch.Tensor]:
    """Returns an adapter's tensors under the names in PEFT's files."""
    peft: Any = sys.modules["peft"]
    return dict(peft.get_peft_model_state_dict(
        model, _entries(model), adapter_name=adapter,
        save_embedding_layers=False))


def run_slots(model: torch.nn.Module,
              slots: Sequence[Slot]) -> Dict[str, Slot]:
    """Returns the model's parameters that are in a run of trainable tensors, by
    their names there.

    For a PeftModel, these are all tensors that PEFT saves of the active
    adapter, named as in its files.

    Raises InvalidArgument if the model trains tensors that PEFT does not save,
    or if PEFT saves some that islands cannot exchange.
    """
    model = unwrapped(model)
    trained = [slot for slot in slots if slot.parameter.requires_grad]
    if not is_peft(model):
        return {slot.names[0]: slot for slot in trained}
    by_id = {id(slot.parameter): slot for slot in slots}
    found: Dict[int, Tuple[str, Slot]] = {}
    for name, tensor in _saved(model, active_adapter(model)).items():
        if id(tensor) not in by_id:
            raise InvalidArgument(
                f"PEFT saves {name} with the adapter, but it is no parameter; "
                "islands exchange parameters only")
        other, _ = found.setdefault(id(tensor), (name, by_id[id(tensor)]))
        if other != name:
            raise InvalidArgument(
                f"PEFT saves one parameter twice, as {other} and {name}, and a "
                "run has it once: untie them, or train one of them only")
    for slot in trained:
        if id(slot.parameter) not in found:
            raise InvalidArgument(
                f"the model trains {slot.names[0]}, which PEFT does not save "
                "with the active adapter: freeze it, or name its module in the "
                "adapter's modules_to_save")
    return dict(found.values())


def save_configuration(model: Any, directory: str) -> None:
    """Writes the active adapter's adapter_config.json, if there is one."""
    model = unwrapped(model)
    if is_peft(model):
        model.peft_config[active_adapter(model)].save_pretrained(directory)


def _plain_tensors(name: str,
                   tensor: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    """Yields the plain tensors that form a tensor, in host memory."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    if hasattr(tensor, "__tensor_flatten__"):
        for part in sorted(tensor.__tensor_flatten__()[0]):
            yield from _plain_tensors(f"{name}.{part}", getattr(tensor, part))
        return
    if tensor.device.type == "meta":
        raise InvalidArgument(
            f"{name} is on the device meta, so it has no values: load the "
            "model's checkpoint first")
    yield name, tensor.as_subclass(torch.Tensor).cpu().contiguous()


def _values_digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(raw_bytes(tensor)).hexdigest()


def frozen_digest(model: torch.nn.Module, exchanged: Collection[int],
                  excludes: Callable[[str], bool]) -> str:
    """Returns a name with the digest of everything frozen in a model.

    The digest covers the names, types, shapes and bytes of the tensors in the
    model's state_dict(), in order of their names, and LoRA's scaling. It leaves
    out tensors that are exchanged (by their id()), excluded or trained,
    inactive adapters, and buffers that are not saved. All ranks of an island
    call this together.
    """
    model = unwrapped(model)
    entries = sorted(
        (".".join(part for part in name.split(".") if part not in _ADAPTED),
         tensor) for name, tensor in _entries(model).items())
    others: Collection[int] = ()
    lines: List[str] = []
    if is_peft(model):
        active = active_adapter(model)
        others = {id(tensor) for adapter in getattr(model, "peft_config")
                  if adapter != active
                  for tensor in _saved(model, adapter).values()}
        for name, module in model.named_modules():
            scaling = getattr(module, "scaling", None)
            if isinstance(scaling, dict) and active in scaling:
                lines.append(f"{plain_name(name)} {float(scaling[active])}")
    # Take few at once, because each may be a copy.
    waiting: Deque[Tuple[str, "Future[str]"]] = collections.deque()

    def take() -> None:
        line, digest = waiting.popleft()
        lines.append(f"{line} {digest.result()}")

    with ThreadPoolExecutor(_THREADS) as pool:
        for name, tensor in entries:
            if (tensor.requires_grad or id(tensor) in exchanged
                    or id(tensor) in others or excludes(name)):
                continue
            for part, values in _plain_tensors(name, tensor):
                waiting.append(
                    (f"{part} {values.dtype} {tuple(values.shape)}",
                     pool.submit(_values_digest, values)))
                if len(waiting) > _THREADS:
                    take()
        while waiting:
            take()
    return FROZEN + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def check_frozen(model: torch.nn.Module, run: Run,
                 exchanged: Collection[int]) -> None:
    """Raises ModelMismatch if the frozen tensors differ from the run's.

    If the run has no digest, warns of parameters that nobody compares, unless
    the run excludes them or their digest.
    """
    if run.frozen is None:
        frozen = [
            slot.names[0] for slot in slots_of(model)
            if not slot.parameter.requires_grad
            and id(slot.parameter) not in exchanged
            and not any(map(run.excludes, (FROZEN, *slot.names)))
        ]
        if frozen:
            _log.warning(
                "%s frozen parameters (such as %s) are not compared with those "
                "of other islands: make the run with trainable_only=True, or "
                "exclude them if they may differ", len(frozen), frozen[0])
        return
    found = frozen_digest(model, exchanged, run.excludes)
    if found != run.frozen:
        raise ModelMismatch(
            "the frozen part of the model differs from that of run "
            f"{run.name}: its digest is {found}, the run's {run.frozen}. "
            "Compare the base model's checkpoint and revision, its type and "
            "quantization, tokens that were added, and the adapter's settings, "
            "such as lora_alpha, with those of the model that the run was made "
            "from. Buffers that training changes, as BatchNorm's statistics, "
            "differ in a model that was trained before attach(): make the run "
            "with them in exclude, such as '*.running_mean'")
