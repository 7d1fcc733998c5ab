# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The C interface (worker/embedding/causeway.h) for ctypes.

ctypes releases the interpreter's lock in every call. A waiting call gets a
fraction of a second at a time, so that the interpreter can handle signals in
between (`NativeIsland._wait`).
"""

import ctypes
import functools
import os
from ctypes import (CDLL, POINTER, Structure, c_char_p, c_double, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)
from typing import Any, Union

from .errors import Error, error_of

OK, CANCELLED, DEADLINE_EXCEEDED = 0, 1, 4
FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
HOST, CUDA = 0, 1
ABI_VERSION = 1

# The name of a file or folder.
Path = Union[str, "os.PathLike[str]"]

# The longest time until a signal is noticed.
SLICE_SECONDS = 0.2


class Options(Structure):
    """causeway_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("coordinator", c_char_p),
        ("island", c_char_p),
        ("description", c_char_p),
        ("tls", c_char_p),
        ("join_token", c_char_p),
        ("tls_ca", c_char_p),
        ("tls_cert", c_char_p),
        ("tls_key", c_char_p),
        ("uplink_mbit_s", c_double),
        ("downlink_mbit_s", c_double),
        ("bulk_connections", c_int32),
        ("overlap_steps", c_int32),
        ("initial_parameters", c_char_p),
        ("checkpoint_directory", c_char_p),
        ("checkpoint_steps", c_uint64),
        ("resume_directory", c_char_p),
        ("leave_timeout_seconds", c_double),
        ("verbose", c_int32),
        ("rank", c_int32),
        ("ranks", c_int32),
        ("leader", c_char_p),
        ("rank_host", c_char_p),
        ("rank_secret", c_char_p),
        ("encrypt_ranks", c_int32),
        ("rank_timeout_seconds", c_double),
        ("region", c_char_p),
        ("anchors_on_device", c_int32),
        ("uplink_bits", c_double),
    ]

    def __init__(self, **values: Any) -> None:
        """Takes str, paths, numbers and None, which is the default."""
        super().__init__(struct_size=ctypes.sizeof(Options), overlap_steps=-1)
        for name, value in values.items():
            if value is not None:
                is_text = isinstance(value, (str, os.PathLike))
                setattr(self, name, os.fsencode(value) if is_text else value)


class Run(Structure):
    """causeway_run."""

    _fields_ = [
        ("run_id", c_char_p),
        ("name", c_char_p),
        ("island", c_char_p),
        ("shard", c_uint32),
        ("shards", c_uint32),
        ("step", c_uint64),
        ("total_steps", c_uint64),
        ("batch_size", c_uint32),
        ("sequence_length", c_uint32),
        ("parameters", c_uint64),
        ("tensors", c_uint32),
        ("fragments", c_uint32),
        ("configuration", c_char_p),
    ]


class Tensor(Structure):
    """causeway_tensor."""

    _fields_ = [
        ("name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("dimensions", c_uint32),
        ("fragment", c_uint32),
    ]


class Buffer(Structure):
    """causeway_buffer."""

    _fields_ = [
        ("name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("dimensions", c_uint32),
        ("first", c_uint64),
        ("count", c_uint64),
        ("dtype", c_int32),
        ("device", c_int32),
        ("data", c_void_p),
        ("stream", c_void_p),
    ]


class Step(Structure):
    """causeway_step."""

    _fields_ = [
        ("step", c_uint64),
        ("finished", c_int32),
        ("activity", c_char_p),
        ("waited_seconds", c_double),
    ]


class Report(Structure):
    """causeway_report."""

    _fields_ = [
        ("tokens", c_uint64),
        ("loss", c_double),
        ("learning_rate", c_double),
    ]


class StuckRank(Structure):
    """causeway_stuck_rank."""

    _fields_ = [
        ("process", c_int32),
        ("rank", c_int32),
        ("is_sure", c_int32),
        ("text", c_char_p),
        ("last_step", c_uint64),
    ]


_FUNCTIONS = {
    "open": [POINTER(Options), POINTER(c_void_p)],
    "await_run": [c_void_p, c_double, POINTER(Run)],
    "data_order": [c_void_p, POINTER(c_uint32)],
    "tensor_at": [c_void_p, c_uint32, POINTER(Tensor)],
    "attach": [c_void_p, POINTER(Buffer), c_size_t],
    "set_stream": [c_void_p, c_void_p],
    "next_step": [c_void_p, c_double, POINTER(Step)],
    "after_step": [c_void_p, POINTER(Report), c_double, POINTER(Step)],
    "synchronize": [c_void_p, c_double, POINTER(Step)],
    "request_leave": [c_void_p, c_char_p],
    "fail": [c_void_p, c_int32, c_char_p],
    "audit": [c_void_p, POINTER(c_char_p), POINTER(c_char_p), c_size_t],
    "progress": [c_void_p, POINTER(c_char_p)],
    "read_merged": [c_void_p, POINTER(Buffer), c_size_t],
    "save": [c_void_p, c_char_p],
    "check_run": [c_char_p, c_char_p],
    "watch_open": [POINTER(c_void_p), POINTER(c_char_p)],
    "watch_look": [c_void_p, c_double, c_double, c_double, POINTER(StuckRank)],
    "watch_failed": [c_void_p, c_int32, c_int32, c_char_p],
    "watch_returned": [c_void_p, c_int32, c_char_p],
    "watch_take_corrupt": [c_void_p, POINTER(c_int32), POINTER(c_int32)],
}


def library_path() -> str:
    """Returns libcauseway.so's path: $CAUSEWAY_LIBRARY, or in the package."""
    path = os.environ.get("CAUSEWAY_LIBRARY")
    if path:
        return path
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib",
                        "libcauseway.so")


@functools.lru_cache(maxsize=None)
def library() -> CDLL:
    """Loads the library. Raises Error if it cannot be loaded."""
    path = library_path()
    try:
        loaded = CDLL(path)
    except OSError as error:
        raise Error(
            f"cannot load Causeway's library {path}: {error}. Install the "
            "wheel that deploy/wheel.sh makes, or name the library in "
            "CAUSEWAY_LIBRARY") from error
    for name, arguments in _FUNCTIONS.items():
        function = getattr(loaded, "causeway_" + name)
        function.argtypes, function.restype = arguments, c_int32
    loaded.causeway_last_error.restype = c_char_p
    loaded.causeway_abi_version.restype = c_uint32
    loaded.causeway_leader.argtypes = [c_void_p]
    loaded.causeway_leader.restype = c_char_p
    loaded.causeway_close.argtypes = [c_void_p]
    loaded.causeway_close.restype = None
    if loaded.causeway_abi_version() < ABI_VERSION:
        raise Error(f"{path} is older than this package: its interface is "
                    f"version {loaded.causeway_abi_version()}, needed is "
                    f"{ABI_VERSION}")
    return loaded


def failure(code: int) -> Error:
    """Returns the exception of this thread's last call, which returned
    `code`."""
    message = library().causeway_last_error() or b""
    return error_of(code, message.decode(errors="replace"))


def check(code: int) -> None:
    """Raises the exception of a failed call."""
    if code != OK:
        raise failure(code)
