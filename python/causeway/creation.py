# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A new run, made from a PyTorch model or from arrays."""

import ctypes
import json
import math
import os
import sys
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Any, BinaryIO, Dict, Iterable, List, Mapping,
                    Optional, Tuple, Union)

from ._library import Path, check, library
from .errors import InvalidArgument
from .joined_run import matches_any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RunFiles:
    """The files with which a coordinator begins a run."""

    # --config
    configuration: str
    # --initial_parameters
    parameters: str


def _block(name: str, fields: Dict[str, Any]) -> str:
    """Returns a message in the text format of Protocol Buffers. Lists have
    strings; a string alone is a value of an enum."""
    lines = [f"{name} {{"]
    for field, value in fields.items():
        values = (map(json.dumps, value) if isinstance(value, list)
                  else [value])
        lines += [f"  {field}: {v}" for v in values if v is not None]
    return "\n".join(lines + ["}"]) + "\n"


def _patterns(given: Iterable[str]) -> List[str]:
    """Returns patterns as a list; a string alone is one pattern."""
    return [given] if isinstance(given, str) else list(given)


# The types of values that a run exchanges, and what safetensors calls them.
_TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def _type_of(tensor: Any) -> str:
    """Returns "float32" and so on, of PyTorch's and of NumPy's types."""
    return str(tensor.dtype).rpartition(".")[2]


def raw_bytes(values: "torch.Tensor") -> "ctypes.Array[ctypes.c_char]":
    """Returns the memory of a contiguous tensor of the host."""
    size = values.numel() * values.element_size()
    return (ctypes.c_char * size).from_address(values.data_ptr())


def _write_values(file: BinaryIO, tensor: Any) -> None:
    """Writes the values of a PyTorch tensor, or of an array."""
    if not hasattr(tensor, "data_ptr"):
        import numpy
        file.write(numpy.ascontiguousarray(tensor).tobytes())
        return
    values = tensor.detach().cpu().contiguous()
    file.write(raw_bytes(values))


def write_safetensors(file: BinaryIO, tensors: Mapping[str, Any]) -> None:
    """Writes tensors of 4 or 2 bytes a value (common/tensors/safetensors.h)."""

    def width(tensor: Any) -> int:
        return 4 if _type_of(tensor) == "float32" else 2

    # Falling sizes keep each value at a multiple of its own size.
    ordered = sorted(tensors.items(), key=lambda item: -width(item[1]))
    header, offset = {}, 0
    for name, tensor in ordered:
        end = offset + math.prod(tensor.shape) * width(tensor)
        header[name] = {
            "dtype": _TYPES[_type_of(tensor)],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, tensor in ordered:
        _write_values(file, tensor)


def _parameters_of(model: "torch.nn.Module") -> Dict[str, Any]:
    from .parameters import check_module, slots_of
    check_module(model)
    return {slot.names[0]: slot.parameter.detach() for slot in slots_of(model)
            if slot.parameter.requires_grad}


def _frozen_names(model: Any) -> List[str]:
    """Returns the names of a module's frozen parameters and of its buffers;
    none of other models."""
    if isinstance(model, Mapping):
        return []
    from .parameters import plain_name, slots_of, unwrapped
    names = [name for slot in slots_of(model)
             if not slot.parameter.requires_grad for name in slot.names]
    return names + [plain_name(name)
                    for name, _ in unwrapped(model).named_buffers()]


def _nothing() -> Any:
    """Returns the value of a name that is in the file only for a pattern,
    because the coordinator refuses patterns that match nothing there."""
    torch = sys.modules.get("torch")
    if torch is None:
        import numpy
        return numpy.empty(0, numpy.float32)
    return torch.empty(0, dtype=torch.float32, device="cpu")


def _trainable_of(model: Any,
                  exclude: Iterable[str]) -> Tuple[Dict[str, Any], str]:
    """Returns the trainable tensors, and the name with the digest of the
    frozen ones."""
    if isinstance(model, Mapping):
        raise InvalidArgument("trainable_only takes a torch.nn.Module, which "
                              "says what is trainable")
    from .adapters import frozen_digest, run_slots
    from .parameters import slots_of
    slots = run_slots(model, slots_of(model))
    if not any(slot.parameter.requires_grad for slot in slots.values()):
        raise InvalidArgument(
            "no parameter of the model requires gradients: PEFT loads adapters "
            "that way unless given is_trainable=True")
    tensors = {name: slot.parameter.detach() for name, slot in slots.items()}

    def excludes(name: str) -> bool:
        if not matches_any(exclude, name):
            return False
        tensors[name] = _nothing()
        return True

    frozen = frozen_digest(
        model, {id(slot.parameter) for slot in slots.values()}, excludes)
    tensors[frozen] = _nothing()
    return tensors, frozen


def _converted(tensors: Mapping[str, Any], dtype: Any) -> Dict[str, Any]:
    """Returns tensors of PyTorch as others of type `dtype`."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(dtype, torch.dtype):
        raise InvalidArgument(f"dtype is {dtype!r}; it is a torch.dtype, such "
                              "as torch.bfloat16")
    for key, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(
                f"dtype is for PyTorch's tensors, and {key} is of type "
                f"{type(tensor).__name__}: convert the values before")
    return {key: tensor.to(dtype) for key, tensor in tensors.items()}


def create_run(model: "Union[torch.nn.Module, Mapping[str, Any]]",
               directory: Path,
               *,
               name: str,
               total_steps: int,
               batch_size: int,
               sequence_length: int,
               trainable_only: bool = False,
               inner_steps_per_round: int = 5,
               fragments: int = 1,
               overlap_steps: Optional[int] = None,
               max_overlap_steps: int = 0,
               format: Optional[str] = None,
               ecq_bits: float = 1.8,
               outer_learning_rate: float = 0.8,
               outer_momentum: float = 0.2,
               merge: str = "RADIAL_DIRECTIONAL",
               min_islands: int = 1,
               max_islands: int = 64,
               shards: Optional[int] = None,
               seed: int = 1,
               exclude: Iterable[str] = (),
               mean_only: Iterable[str] = (),
               block: Iterable[str] = (),
               dtype: "Optional[torch.dtype]" = None) -> RunFiles:
    """Writes the configuration and the initial values of a run of a model.

    The run has the model's parameters that require gradients, tied ones once,
    under their first name. Edit the configuration before the first start
    (docs/configuration.md); the arguments here cover most needs. Then start the
    coordinator with

        causeway-coordinator --config DIRECTORY/run.textproto \\
            --initial_parameters DIRECTORY/initial.safetensors --state_dir STATE

    Args:
      model: a torch.nn.Module, or tensors by name: PyTorch's, or arrays of
        NumPy or JAX.
      directory: the folder for both files, made if missing.
      name: the run's name, 1 to 64 of [a-z0-9-].
      total_steps: the optimizer's steps in the whole run, on each island.
      batch_size: the sequences in a step of an island, over all its ranks.
      sequence_length: the most tokens in a sequence.
      trainable_only: whether the run has a digest of the model's frozen
        tensors, in which all islands must agree. If the model is a PeftModel,
        tensors have the names of PEFT's files, and adapter_config.json is
        written, too: for `causeway export --like DIRECTORY`.
      inner_steps_per_round: the steps between two exchanges of a fragment.
        More steps send less, and learn less (docs/benchmarks_quality.md).
      fragments: the parts that are exchanged in turn. The last one holds what
        is in no block.
      overlap_steps: the steps after which an exchange's result is applied,
        while training goes on; default: a fifth of a round.
      max_overlap_steps: further steps while it is late.
      format: the format of exchanges, both ways: FP32, BF16, INT8, INT4, E3M0,
        or ECQ, with error feedback; default: ECQ in rounds of up to 10 steps.
        Longer rounds use INT4, because a run has fewer of them to make up for
        what rounding loses.
      ecq_bits: the bits per value in ECQ, 0.5 to 8.
      outer_learning_rate, outer_momentum: of the outer Nesterov step.
      merge: how contributions become one: RADIAL_DIRECTIONAL averages lengths
        and directions of matrices apart, so that the islands' noise, which
        partly cancels, does not shorten the step; MEAN is the mean.
      min_islands: the islands that begin the run.
      max_islands: the most islands at once.
      shards: the disjoint parts of the data; default: min_islands.
      seed: the run's seed.
      exclude: patterns of names that islands do not exchange, which may be
        those of buffers and frozen parameters.
      mean_only: patterns of embeddings and heads, for RADIAL_DIRECTIONAL.
      block: where names have the number of their block, as "layers.#.".
      dtype: the type of the values in the file, of PyTorch's tensors; default:
        the parameters'.

    Raises:
      InvalidArgument: the coordinator would refuse the files, which are written
        nevertheless, or the model has values that no run exchanges.
    """
    exclude, frozen = _patterns(exclude), None
    if overlap_steps is None:
        overlap_steps = inner_steps_per_round // 5
    if format is None:
        format = "ECQ" if inner_steps_per_round <= 10 else "INT4"
    if trainable_only:
        tensors, frozen = _trainable_of(model, exclude)
    else:
        tensors = (dict(model) if isinstance(model, Mapping)
                   else _parameters_of(model))
    if dtype is not None:
        tensors = _converted(tensors, dtype)
    for key, tensor in tensors.items():
        if _type_of(tensor) not in _TYPES:
            if matches_any(exclude, key):
                tensors[key] = _nothing()
                continue
            raise InvalidArgument(
                f"{key} is of type {tensor.dtype}; a run exchanges "
                "float32, bfloat16 and float16")
        if getattr(tensor, "is_meta", False):
            raise InvalidArgument(f"{key} is on the device meta, so it has no "
                                  "values to begin a run with")
        if hasattr(tensor, "to_local"):
            raise InvalidArgument(f"{key} is sharded; a run is made from a "
                                  "model before it is")
    if not tensors:
        raise InvalidArgument("no parameter of the model requires gradients")
    frozen_names = _frozen_names(model) if exclude else []
    for pattern in exclude:
        if not any(matches_any([pattern], key) for key in tensors):
            for key in frozen_names:
                if matches_any([pattern], key):
                    tensors[key] = _nothing()
                    break
    os.makedirs(directory, exist_ok=True)
    if frozen is not None:
        from .adapters import save_configuration
        save_configuration(model, os.fspath(directory))
        exclude.append(frozen)
    files = RunFiles(os.path.join(directory, "run.textproto"),
                     os.path.join(directory, "initial.safetensors"))
    with open(files.parameters, "wb") as file:
        write_safetensors(file, tensors)
    blocks = [
        f"name: {json.dumps(name)}\nseed: {seed}\n",
        _block("tensors", {
            "sequence_length": sequence_length,
            "exclude": exclude,
            "mean_only": _patterns(mean_only),
            "block": _patterns(block),
        }),
        _block("data", {"shards": shards}),
        _block("training", {
            "total_steps": total_steps,
            "batch_size": batch_size,
        }),
        _block("outer_optimizer", {
            "algorithm": "NESTEROV",
            "learning_rate": outer_learning_rate,
            "momentum": outer_momentum,
            "merge": merge,
        }),
        _block("synchronization", {
            "inner_steps_per_round": inner_steps_per_round,
            "fragments": fragments,
            "overlap_steps": overlap_steps,
            "max_overlap_steps": max_overlap_steps,
            "uplink_format": format,
            "downlink_format": format,
            "ecq_bits": ecq_bits if format == "ECQ" else None,
            "error_feedback": 1 if format == "ECQ" else None,
        }),
        _block("storage", {
            # An island's checkpoint, made every 100 steps by default, is of
            # use while the updates since are kept.
            "update_history": max(8, 500 // max(1, inner_steps_per_round)),
        }),
        _block("membership", {
            "min_islands": min_islands,
            "max_islands": max_islands,
        }),
    ]
    with open(files.configuration, "w", encoding="utf-8") as file:
        file.write("\n".join(blocks))
    check(library().causeway_check_run(os.fsencode(files.configuration),
                                       os.fsencode(files.parameters)))
    return files
