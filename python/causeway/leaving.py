# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Treats SIGTERM as a request to leave."""

import os
import signal
import threading
import time
from typing import Any, Callable, Optional

# Signals that come within this time are one request: systemd and Slurm signal
# every process, and torchrun passes its signal on besides.
_ONE_REQUEST_SECONDS = 2


class LeaveOnSigterm:
    """Calls a function at the first SIGTERM; another one, more than two seconds
    later, ends the process.

    Does nothing if SIGTERM has another handler, or outside the main thread. A
    child that was forked ends at its first SIGTERM, as if there were no
    handler.
    """

    def __init__(self, request_leave: Callable[[], None]):
        self._request_leave = request_leave
        self._process = os.getpid()
        self._asked: Optional[float] = None
        self._installed = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        if self._installed:
            signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, _: Any) -> None:
        now = time.monotonic()
        if os.getpid() == self._process:
            if self._asked is None:
                self._asked = now
                self._request_leave()
                return
            if now - self._asked <= _ONE_REQUEST_SECONDS:
                return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def remove(self) -> None:
        if (self._installed and os.getpid() == self._process
                and threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) == self._handle):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
