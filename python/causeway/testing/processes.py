# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Runs made of real processes, for tests.

Needs the coordinator, the tool and the library among the test's data.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any, Dict, List, Optional

import causeway
from causeway.testing.fork_server import ForkServer

# A test gives up after this time. Machines may be busy.
_DEADLINE_SECONDS = 200

# Bazel has built these; elsewhere the environment names the programs.
_COORDINATOR = os.environ.get("CAUSEWAY_COORDINATOR_PROGRAM",
                              "server/causeway-coordinator")
_LIBRARY = os.path.abspath("worker/embedding/libcauseway.so")
if os.path.exists(_LIBRARY):
    os.environ.setdefault("CAUSEWAY_LIBRARY", _LIBRARY)


def free_port() -> int:
    """Returns a free port, outside of the range that Linux gives to clients and
    to servers that ask for any, so that none of them takes it before the
    caller's server does."""
    while True:
        port = random.randrange(10000, 32768)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                pass


class Process:
    """A process that writes lines. A fork server may start it: see there."""

    def __init__(self, command: List[str], log: str,
                 server: Optional[ForkServer] = None,
                 environment: Optional[Dict[str, str]] = None):
        self._log = log
        self._lines: List[str] = []
        self._changed = threading.Condition()
        self._errors = open(log, "w", encoding="utf-8")
        if server is not None:
            self.process = server.start(command, self._errors, environment)
        else:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                            stderr=self._errors, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._lines.append("")
            self._changed.notify_all()

    def output(self) -> str:
        """Returns what the process has written to stdout and stderr."""
        with open(self._log, encoding="utf-8") as file:
            return "".join(self._lines) + file.read()

    def events(self) -> List[Dict[str, Any]]:
        """Returns the events of an island_program so far."""
        with self._changed:
            return [json.loads(line) for line in self._lines
                    if line.startswith("{")]

    def wait_for(self, event: str, step: int = 0) -> Dict[str, Any]:
        """Waits for an event of this name, at this step or later."""

        def found():
            for candidate in self.events():
                if (candidate["event"] == event
                        and candidate.get("step", 0) >= step):
                    return candidate
            return "ended" if "" in self._lines else None

        with self._changed:
            result = self._changed.wait_for(found, _DEADLINE_SECONDS)
        if not isinstance(result, dict):
            raise AssertionError(f"no {event} at {step}:\n{self.output()}")
        return result

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Waits for the end; returns the exit code, or minus a signal."""
        code = self.process.wait(_DEADLINE_SECONDS)
        self._reader.join(_DEADLINE_SECONDS)
        return code

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self.process.stdout.close()
        self._errors.close()


class ProcessTestCase(unittest.TestCase):
    """A test with a folder, a coordinator and islands of its own.

    imports: modules that programs of `fork` find imported.
    """

    lease_seconds = 3
    imports = ["torch"]
    _server: Optional[ForkServer] = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self._processes: List[Process] = []
        self._runs = 0
        self.port = 0

    def tearDown(self):
        for process in self._processes:
            process.stop()
        # The files of a test that failed explain it.
        if self._outcome.success:
            shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def start(self, name: str, command: List[str]) -> Process:
        self._runs += 1
        process = Process(command, self.path(f"{name}-{self._runs}.log"))
        self._processes.append(process)
        return process

    def fork(self, name: str, program: List[str],
             **environment: Any) -> Process:
        """Starts a program of Python, a file or `-m` and a module, with these
        variables, from a process that has `imports`, and read its own
        variables when it imported them."""
        cls = type(self)
        if cls._server is None:
            cls._server = ForkServer(cls.imports)
        self._runs += 1
        process = Process(
            program, self.path(f"{name}-{self._runs}.log"), cls._server,
            {key: str(value) for key, value in environment.items()})
        self._processes.append(process)
        return process

    def create_run(self, model, quorum=1, **fields) -> causeway.RunFiles:
        """Writes a run of two islands that averages parameters, exactly.

        With a `quorum` of 2 neither finishes it while the other is away.
        """
        values = dict(name="test", total_steps=200, batch_size=4,
                      sequence_length=8, inner_steps_per_round=10,
                      fragments=3, overlap_steps=1, format="FP32",
                      outer_learning_rate=1.0, outer_momentum=0.0,
                      merge="MEAN", min_islands=2)
        values.update(fields)
        files = causeway.create_run(model, self.path("run"), **values)
        with open(files.configuration, encoding="utf-8") as file:
            text = file.read()
        with open(files.configuration, "w", encoding="utf-8") as file:
            file.write(text.replace(
                "membership {",
                f"membership {{\n  lease_seconds: {self.lease_seconds}\n"
                "  heartbeat_seconds: 0.2\n"
                f"  quorum: {quorum}\n"
                # At the optimum, any progress is far larger than the last one.
                "  outlier_factor: 0"))
        return files

    def start_coordinator(self, files: causeway.RunFiles,
                          stays: bool = False) -> Process:
        """Starts or continues the run, and sets `port`.

        The coordinator ends with the run unless it `stays`.
        """
        port_file = self.path("port")
        if os.path.exists(port_file):
            os.remove(port_file)
        coordinator = self.start("coordinator", [
            _COORDINATOR, f"--config={files.configuration}",
            f"--initial_parameters={files.parameters}",
            f"--state_dir={self.path('state')}",
            f"--listen=127.0.0.1:{self.port}", f"--port_file={port_file}",
            f"--exit_when_finished={'false' if stays else 'true'}"
        ])
        event = threading.Event()
        for _ in range(_DEADLINE_SECONDS * 50):
            if os.path.exists(port_file):
                with open(port_file, encoding="utf-8") as file:
                    text = file.read()
                if text:
                    self.port = int(text)
                    return coordinator
            if coordinator.process.poll() is not None:
                break
            event.wait(0.02)
        raise AssertionError(coordinator.output())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start_island(self, name: str, *, join: Optional[dict] = None,
                     **settings) -> Process:
        """Starts an island_program."""
        settings["join"] = {"coordinator": self.address, "island": name,
                            "verbose": True, **(join or {})}
        return self.fork(name, ["-m", "causeway.testing.island_program",
                                json.dumps(settings)])

    def assert_ends_well(self, process: Process, code: int = 0) -> None:
        self.assertEqual(process.wait(), code, process.output())

    def start_script(self, script: str, *arguments: str,
                     **environment: Any) -> Process:
        """Starts a program of Python with these variables."""
        variables = [f"{key}={value}" for key, value in environment.items()]
        return self.start(os.path.basename(script), [
            "env", *variables, sys.executable, script, *arguments])

    def tool(self, *arguments: str) -> str:
        """Runs `causeway` and returns its output."""
        done = subprocess.run(["cli/causeway", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=_DEADLINE_SECONDS,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


KILL, TERMINATE, INTERRUPT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
STOP, CONTINUE = signal.SIGSTOP, signal.SIGCONT
