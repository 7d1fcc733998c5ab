# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Treats SIGTERM as a request to leave."""

import gc
import os
import signal
import threading
import time
import weakref
from typing import Any, Callable, Optional

# A scheduler signals all processes, and the launcher among them passes the
# signal on: within this time it is the same one. Python hears of a signal only
# once an operation of PyTorch has ended, and launchers kill after as long.
_ONE_SIGNAL_SECONDS = 30


class LeaveOnSigterm:
    """Calls a method at the first SIGTERM; another one ends the process, unless
    it comes within 30 seconds.

    Does nothing if SIGTERM has another handler, or outside the main thread. The
    handler does not keep the method's object, and goes with it. A child that
    was forked ends at its first SIGTERM, as if there were no handler. From the
    first SIGTERM until `remove`, the end of a child raises no exception.
    """

    def __init__(self, request_leave: Callable[[], None]):
        self._request_leave = weakref.WeakMethod(request_leave,
                                                 lambda _: self.remove())
        self._process = os.getpid()
        self._first: Optional[float] = None
        self._child_handler: Any = None
        self._installed = (
            threading.current_thread() is threading.main_thread()
            and self._is_free())
        if self._installed:
            signal.signal(signal.SIGTERM, self._handle)

    @staticmethod
    def _is_free() -> bool:
        """Returns whether SIGTERM has no handler but that of a lost object."""
        handler = signal.getsignal(signal.SIGTERM)
        other = getattr(handler, "__self__", None)
        if isinstance(other, LeaveOnSigterm):
            gc.collect()
            return other._request_leave() is None
        return handler is signal.SIG_DFL

    def _handle(self, number: int, _: Any) -> None:
        now, request_leave = time.monotonic(), self._request_leave()
        if os.getpid() != self._process or request_leave is None or (
                self._first is not None
                and now >= self._first + _ONE_SIGNAL_SECONDS):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._first is None:
            self._first = now
            # Schedulers signal a DataLoader's processes, too. PyTorch's handler
            # would raise their end in the step that is still to be made.
            self._child_handler = signal.signal(signal.SIGCHLD, lambda *_: None)
            request_leave()

    def remove(self) -> None:
        if (self._installed and os.getpid() == self._process
                and threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) == self._handle):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self._child_handler is not None:
                signal.signal(signal.SIGCHLD, self._child_handler)
