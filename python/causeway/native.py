# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""An island of causeway.h for Python: exceptions, and waits that end."""

import ctypes
import gc
import json
import logging
import math
import os
import secrets
import socket
import time
import weakref
from typing import Any, Callable, Dict, Optional

from . import _library
from .errors import (DataLoss, Error, InvalidArgument, NameTaken, Timeout,
                     Unavailable)
from .ranks import WAITING, Ranks
from .joined_run import Run, read_run

_log = logging.getLogger("causeway")

# The time after which a wait logs its reason.
PATIENCE_SECONDS = 10
# The codes after which another try to enrol may succeed, and the pause before
# it.
_MAY_ENROL_LATER = (Unavailable.code, Timeout.code)
_ENROL_PAUSE_SECONDS = 0.5
# How often rank 0 tells the other ranks that the island has not joined yet.
_TELL_SECONDS = 60


class NativeIsland:
    """An open handle. For use by one thread, except for request_leave.

    handle: the argument of the library's functions.
    stopped: whether no further step will be trained.
    ended: whether the handle can only be closed.
    failure: the error that has ended the island, if one has.
    waiting_for: what training waits for; None if there is a step to train.
    """

    # The islands of this process, ended ones included.
    _all: "weakref.WeakSet[NativeIsland]" = weakref.WeakSet()

    def __init__(self, options: Dict[str, Any], ranks: Ranks,
                 timeout: Optional[float]):
        """Opens the island on all ranks, on rank 0 first.

        `options` are those of causeway.h, except the ranks'. `timeout` bounds
        the tries to enrol while no coordinator answers.
        """
        self._library = _library.library()
        self._ranks = ranks
        self._step = _library.Step()
        self._report = _library.Report()
        self._step_reference = ctypes.byref(self._step)
        self.stopped = self.ended = False
        self.failure: Optional[Error] = None
        self.waiting_for: Optional[str] = None
        self._name = (options["coordinator"], options["island"]
                      or options["tls"] or options["tls_cert"])
        self.handle = self._open(options, timeout)
        self._all.add(self)
        self._closing = weakref.finalize(self, self._library.causeway_close,
                                         ctypes.c_void_p(self.handle.value))
        # ctypes takes less time for arguments that need no conversion.
        self._call_after_step = self._library["causeway_after_step"]
        self._after_step_arguments = (
            self.handle, ctypes.byref(self._report),
            ctypes.c_double(_library.SLICE_SECONDS), self._step_reference)

    def _open(self, options: Dict[str, Any],
              timeout: Optional[float]) -> ctypes.c_void_p:
        ranks = self._ranks
        enrols = bool(options["join_token"]) and ranks.rank == 0
        end = math.inf if timeout is None else time.monotonic() + timeout
        options = dict(options, rank=ranks.rank, ranks=ranks.size,
                       rank_host=ranks.host())

        def open_rank(leader: Any) -> Any:
            # The coordinator would only know that a process is alive.
            if ranks.rank == 0 and self._is_taken():
                # A function that raised may have left an island and its
                # optimizer, which refer to each other, to be collected.
                gc.collect()
                if self._is_taken():
                    raise NameTaken("this process already is the island of "
                                    "this name: close() ends that one")
            opened = ctypes.c_void_p()
            if ranks.size > 1:
                options["leader"], options["rank_secret"] = leader or (
                    f"{options['rank_host'] or socket.gethostname()}:0",
                    secrets.token_hex(32))
            code = self._library.causeway_open(
                ctypes.byref(_library.Options(**options)),
                ctypes.byref(opened))
            if (not enrols or code not in _MAY_ENROL_LATER
                    or time.monotonic() > end):
                _library.check(code)
                return opened
            time.sleep(_ENROL_PAUSE_SECONDS)
            return WAITING

        handle: ctypes.c_void_p = ranks.first(
            open_rank, lambda opened:
            (self._library.causeway_leader(opened).decode(),
             options["rank_secret"]) if ranks.size > 1 else None)
        return handle

    def _is_taken(self) -> bool:
        return any(other._name == self._name and not other.stopped
                   for other in self._all)

    def close(self) -> None:
        self.ended = self.stopped = True
        # The library's functions refuse null. An exception of a signal's
        # handler may end the next line once the handle is closed.
        self.handle.value = None
        self._closing()

    def _opened(self) -> ctypes.c_void_p:
        """Returns the handle. Raises InvalidArgument after close()."""
        if not self.handle:
            raise InvalidArgument("the island is closed")
        return self.handle

    def fail(self, error: Error) -> None:
        """Ends the island because of an error of this process, and reports it
        to the coordinator and the other ranks."""
        if not self.ended:
            self._library.causeway_fail(self.handle, error.code,
                                        str(error).encode())
            self._end(error)

    def check(self) -> None:
        """Raises the error that has ended the island, if one has."""
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)

    def _end(self, error: Error) -> None:
        self.ended = self.stopped = True
        self.failure = error

    def await_run(self, timeout: Optional[float]) -> Run:
        """Waits until the island has joined."""
        run = _library.Run()
        end = math.inf if timeout is None else time.monotonic() + timeout

        def await_run(told: Optional[Any]) -> Any:
            left = end - time.monotonic()
            limit = left if told is not None else min(left, _TELL_SECONDS)
            code = self._wait(
                lambda seconds: self._library.causeway_await_run(
                    self.handle, seconds, ctypes.byref(run)), limit,
                lambda: "joining")
            if code == _library.DEADLINE_EXCEEDED and left > limit:
                return WAITING
            self._check(code)
            return read_run(self.handle, run)

        joined: Run = self._ranks.first(await_run)
        return joined

    def attach(self, buffers: "ctypes.Array[_library.Buffer]") -> None:
        """Gives the library the tensors of this rank."""
        self._check(
            self._library.causeway_attach(self._opened(), buffers,
                                          len(buffers)))

    def set_stream(self, stream: int) -> None:
        """Says on which CUDA stream the tensors are written from now on."""
        self._check(self._library.causeway_set_stream(self._opened(), stream))

    @property
    def step(self) -> int:
        """The step to train; 0 while it is unknown, or if there is none.

        The library sets it, so that it is right at any exception: a signal's
        handler may raise one when a call of the library has just returned.
        """
        return int(self._step.step)

    @property
    def waited_seconds(self) -> float:
        return float(self._step.waited_seconds)

    def next_step(self, timeout: Optional[float]) -> None:
        """Waits for a step to train."""
        self._take(
            self._wait(
                lambda seconds: self._library.causeway_next_step(
                    self.handle, seconds, self._step_reference), timeout,
                lambda: (self._step.activity or b"waiting").decode()))

    def after_step(self, tokens: int, loss: float, learning_rate: float,
                   timeout: Optional[float]) -> None:
        """Reports the trained step, and waits for the next one."""
        report = self._report
        report.tokens, report.loss = tokens, loss
        report.learning_rate = learning_rate
        code = self._call_after_step(*self._after_step_arguments)
        if code != _library.OK or self._step.finished:
            self._take_or_wait(code, timeout)

    def synchronize(self, timeout: Optional[float]) -> None:
        """Waits for the updates of everything sent, and for the next step."""
        code = self._library.causeway_synchronize(self.handle,
                                                  _library.SLICE_SECONDS,
                                                  self._step_reference)
        self._take_or_wait(code, timeout)

    def request_leave(self, reason: str) -> None:
        _library.check(
            self._library.causeway_request_leave(self._opened(),
                                                 reason.encode()))

    def audit(self, parameters: str, gradient: str) -> None:
        """Compares digests of all ranks. Raises DataLoss if they differ."""
        ranks = self._ranks.gather((parameters.encode(), gradient.encode()))
        digests = [(ctypes.c_char_p * len(ranks))(*one) for one in zip(*ranks)]

        def compare() -> int:
            return int(self._library.causeway_audit(self.handle, *digests,
                                                    len(ranks)))

        try:
            self._ranks.first(lambda told: None if self._ranks.rank else
                              self._check(compare()))
        except DataLoss as error:
            if self._ranks.rank:
                compare()
            self._end(error)
            raise

    def progress(self) -> Dict[str, Any]:
        text = ctypes.c_char_p()
        _library.check(
            self._library.causeway_progress(self._opened(),
                                            ctypes.byref(text)))
        progress: Dict[str, Any] = json.loads(text.value or b"{}")
        return progress

    def save(self, directory: _library.Path) -> None:
        # An error of the folder does not end the island; a rank's error recurs
        # at the next step.
        _library.check(
            self._library.causeway_save(self._opened(),
                                        os.fsencode(directory)))

    def read_merged(self,
                    buffers: "ctypes.Array[_library.Buffer]") -> None:
        """Copies the merged values, on rank 0. Errors are as in save."""
        _library.check(
            self._library.causeway_read_merged(self._opened(), buffers,
                                               len(buffers)))

    def _take_or_wait(self, code: int, timeout: Optional[float]) -> None:
        if code == _library.DEADLINE_EXCEEDED:
            self.next_step(timeout)
        else:
            self._take(code)

    def _take(self, code: int) -> None:
        """Takes the library's answer about the next step."""
        if code == _library.CANCELLED:
            self.stopped = True
        else:
            self._check(code)
            self.stopped = bool(self._step.finished)

    def _check(self, code: int) -> None:
        if code != _library.OK:
            failure = _library.failure(code)
            if code not in (_library.DEADLINE_EXCEEDED, InvalidArgument.code):
                self._end(failure)
            raise failure

    def _wait(self, call: Callable[[float], int], timeout: Optional[float],
              activity: Callable[[], str]) -> int:
        """Calls `call(seconds)` until it returns anything but "time is up".

        Returns its code, which is DEADLINE_EXCEEDED after `timeout` seconds;
        None waits without a limit. Between the calls `waiting_for` is
        `activity()`.
        """
        start = time.monotonic()
        end = math.inf if timeout is None else start + timeout
        said = start + PATIENCE_SECONDS
        while True:
            left = min(_library.SLICE_SECONDS, end - time.monotonic())
            code = call(max(0.0, left))
            if code != _library.DEADLINE_EXCEEDED:
                self.waiting_for = None
                return code
            self.waiting_for = activity()
            if time.monotonic() > said:
                said = math.inf
                _log.warning("%s", self.waiting_for)
            if time.monotonic() >= end:
                return code
