# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Makes an island of any framework, by ctypes and the C interface (causeway.h).

The parameters that a run exchanges are arrays of NumPy, which stay where they
are. The library may change them in Island() and in after_step().
"""

import ctypes
from ctypes import (POINTER, Structure, byref, c_char_p, c_double, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

OK, DEADLINE_EXCEEDED = 0, 4


class Options(Structure):
    # The options that would follow keep their defaults.
    _fields_ = [("struct_size", c_size_t), ("coordinator", c_char_p),
                ("island", c_char_p), ("description", c_char_p),
                ("tls", c_char_p)]


class Run(Structure):
    _fields_ = [("run_id", c_char_p), ("name", c_char_p), ("island", c_char_p),
                ("shard", c_uint32), ("shards", c_uint32), ("step", c_uint64),
                ("total_steps", c_uint64), ("batch_size", c_uint32),
                ("sequence_length", c_uint32), ("parameters", c_uint64),
                ("tensors", c_uint32), ("fragments", c_uint32),
                ("configuration", c_char_p)]


class Buffer(Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_int64)),
                ("dimensions", c_uint32), ("first", c_uint64),
                ("count", c_uint64), ("dtype", c_int32), ("device", c_int32),
                ("data", c_void_p), ("stream", c_void_p)]


class Step(Structure):
    _fields_ = [("step", c_uint64), ("finished", c_int32),
                ("activity", c_char_p), ("waited_seconds", c_double)]


class Report(Structure):
    _fields_ = [("tokens", c_uint64), ("loss", c_double),
                ("learning_rate", c_double)]


class Island:
    """Joins a run with arrays of float32 by name, which get its parameters.

    run describes the run. step has the number of the step to train, and says
    whether the run is finished. Islands with the same part of the data should
    read it in different orders, of which data_order is the number. Call close()
    at the end, also after an error, so that no other island waits for this one.
    """

    def __init__(self, library, coordinator, name, arrays, tls=None):
        self._library = ctypes.CDLL(library)
        self._library.causeway_last_error.restype = c_char_p
        self._island, self.run, self.step = c_void_p(), Run(), Step()
        options = Options(ctypes.sizeof(Options), coordinator.encode(),
                          name.encode(), b"", tls and tls.encode())
        self._call("open", byref(options), byref(self._island))
        try:
            self._begin(arrays)
        except BaseException:
            self.close()
            raise

    def _begin(self, arrays):
        self._wait("await_run", self._island, c_double(1), byref(self.run))
        order = c_uint32()
        self._call("data_order", self._island, byref(order))
        self.data_order = order.value
        buffers = (Buffer * len(arrays))(*(
            Buffer(name=key.encode(), data=array.ctypes.data,
                   shape=(c_int64 * array.ndim)(*array.shape),
                   dimensions=array.ndim)
            for key, array in arrays.items()))
        self._call("attach", self._island, buffers, c_size_t(len(arrays)))
        self._next_step()

    def after_step(self, tokens, loss):
        """Reports the step that was trained, and waits for the next."""
        report = Report(tokens, loss, 0)
        if self._call("after_step", self._island, byref(report), c_double(1),
                      byref(self.step)) == DEADLINE_EXCEEDED:
            self._next_step()

    def close(self):
        self._library.causeway_close(self._island)

    def _next_step(self):
        self._wait("next_step", self._island, c_double(1), byref(self.step))

    def _wait(self, name, *arguments):
        # Signals are handled once a second.
        while self._call(name, *arguments) == DEADLINE_EXCEEDED:
            pass

    def _call(self, name, *arguments):
        code = getattr(self._library, f"causeway_{name}")(*arguments)
        if code not in (OK, DEADLINE_EXCEEDED):
            raise RuntimeError(self._library.causeway_last_error().decode())
        return code
