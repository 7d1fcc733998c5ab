# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Treats SIGTERM as a request to leave."""

import os
import signal
import threading
from typing import Any, Callable


class LeaveOnSigterm:
    """Calls a function at the first SIGTERM; the second ends the process.

    Does nothing if SIGTERM has another handler, or outside the main thread. A
    child that was forked ends at its first SIGTERM, as if there were no
    handler.
    """

    def __init__(self, request_leave: Callable[[], None]):
        self._request_leave = request_leave
        self._process = os.getpid()
        self._installed = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        if self._installed:
            signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, _: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != self._process:
            os.kill(os.getpid(), number)
        else:
            self._request_leave()

    def remove(self) -> None:
        if (self._installed and os.getpid() == self._process
                and threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) == self._handle):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
