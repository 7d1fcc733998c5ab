# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A process that imports modules once and forks programs that need them.

A test starts tens of processes, each of which would import PyTorch for seconds
and Transformers for ten. A forked program is otherwise as one that was started:
it has a process and a `__main__` of its own, and ends as every interpreter
does.
"""

import atexit
import contextlib
import importlib
import json
import os
import queue
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, Dict, List, Optional

_LONGEST_REQUEST = 1 << 17


class Fork:
    """What a test needs of subprocess.Popen, for a forked program."""

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode: Optional[int] = None
        self.stdout: Any = None
        self.ended = threading.Event()

    def poll(self) -> Optional[int]:
        return self.returncode

    def wait(self, timeout: float) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        # The news of its end may be on the way.
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Starts such a process, which lives as long as this one. Thread-safe."""

    def __init__(self, modules: List[str]):
        self._socket, other = socket.socketpair(socket.AF_UNIX,
                                                socket.SOCK_SEQPACKET)
        with other:
            self._server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno()), *modules],
                pass_fds=[other.fileno()])
        atexit.register(self._end)
        self._lock = threading.Lock()
        self._started: queue.Queue = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, program: List[str], log: Any,
              environment: Optional[Dict[str, str]] = None) -> Fork:
        """Runs a file, or `-m` and a module, with arguments. Its stderr goes to
        the file `log`."""
        request = json.dumps({
            "program": program,
            "environment": {**os.environ, **(environment or {})}})
        reader, writer = os.pipe()
        with self._lock:
            socket.send_fds(self._socket, [request.encode()],
                            [writer, log.fileno()])
            # If the server has failed to import a module, its stderr says so.
            fork = self._started.get(timeout=200)
        os.close(writer)
        fork.stdout = os.fdopen(reader, encoding="utf-8")
        return fork

    def _end(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._server.wait()
        self._socket.close()

    def _listen(self) -> None:
        forks = {}
        while True:
            message = self._socket.recv(_LONGEST_REQUEST)
            if not message:
                return
            pid, status = json.loads(message)
            if status is None:
                forks[pid] = Fork(pid)
                self._started.put(forks[pid])
            else:
                fork = forks.pop(pid)
                fork.returncode = os.waitstatus_to_exitcode(status)
                fork.ended.set()


def serve(connection: socket.socket) -> Optional[List[str]]:
    """Returns the program to run, in each fork; none at the end of the test."""

    def tell(pid: int, status: Optional[int]) -> None:
        # The test may have ended.
        with contextlib.suppress(OSError):
            connection.send(json.dumps([pid, status]).encode())

    forks = set()
    while True:
        if select.select([connection], [], [], 0.02)[0]:
            message, descriptors, _, _ = socket.recv_fds(
                connection, _LONGEST_REQUEST, 2)
            if not message:
                for pid in forks:
                    os.kill(pid, signal.SIGKILL)
                return None
            request = json.loads(message)
            pid = os.fork()
            if pid == 0:
                for number, descriptor in enumerate(descriptors, start=1):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                os.environ.clear()
                os.environ.update(request["environment"])
                return request["program"]
            for descriptor in descriptors:
                os.close(descriptor)
            forks.add(pid)
            tell(pid, None)
        for pid in list(forks):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                forks.remove(pid)
                tell(pid, status)


def main() -> None:
    for module in sys.argv[2:]:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        program = serve(connection)
    if program is None:
        return
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        # The interpreter does so for a script.
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
