# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests join()'s errors, how long others wait for an island that has joined,
and how it loads the run's values."""

import contextlib
import os
import socket
import ssl
import subprocess
import threading
import time
import unittest

import torch

import causeway
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import (INTERRUPT, KILL, TERMINATE,
                                        ProcessTestCase)


class JoiningTest(ProcessTestCase):

    lease_seconds = 15

    def serve(self, answer) -> int:
        """Starts a server that calls `answer` with each connection. Returns its
        port."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def accept():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,),
                                 daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    def certificate(self, name: str):
        """Makes a certificate for this host, signed by itself."""
        paths = self.path(name + ".crt"), self.path(name + ".key")
        subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days",
            "2", "-subj", "/CN=" + name, "-addext",
            "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]
        ], check=True, capture_output=True)
        return paths

    def serve_tls(self, certificate) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        context.set_alpn_protocols(["h2"])

        def answer(connection):
            try:
                with context.wrap_socket(connection,
                                         server_side=True) as encrypted:
                    while encrypted.recv(4096):
                        pass
            except OSError:
                connection.close()

        return self.serve(answer)

    def assert_refused(self, error, words, port, timeout=5, **join) -> None:
        with self.assertRaises(error) as caught:
            causeway.join(f"127.0.0.1:{port}", island="east", timeout=timeout,
                          **join)
        self.assertIn(words, str(caught.exception))
        self.assertIn(f"127.0.0.1:{port}", str(caught.exception))

    def test_limits_are_more_than_nothing(self):
        for name in ("bulk_connections", "checkpoint_steps", "leave_timeout",
                     "rank_timeout"):
            for value in (0, -1):
                with self.assertRaisesRegex(causeway.InvalidArgument,
                                            f"{name} is {value}; allowed"):
                    causeway.join("127.0.0.1:1", **{name: value})

    # --- What may succeed later ends with the timeout, and names the cause. ---

    def test_nothing_listens_there(self):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.assert_refused(causeway.Timeout, "nothing listens there",
                                bound.getsockname()[1])

    def test_the_name_is_unknown(self):
        # No name server need be asked about a label of this length.
        with self.assertRaisesRegex(causeway.Timeout, "name is not known"):
            causeway.join(64 * "x" + ".example:7070", island="east", timeout=3)

    def test_another_port_speaks_another_protocol(self):

        def http(connection):
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        self.assert_refused(causeway.Timeout, "it speaks HTTP/1",
                            self.serve(http))

        def greet(connection):
            with connection:
                connection.sendall(b"220 mail.example ESMTP ready\r\n")
                while connection.recv(4096):
                    pass

        port = self.serve(greet)
        self.assert_refused(causeway.Timeout, "it does not speak gRPC", port)
        authority, _ = self.certificate("authority")
        self.assert_refused(causeway.Timeout, "neither TLS nor gRPC", port,
                            tls_ca=authority)

    def test_it_closes_the_connection(self):
        self.assert_refused(causeway.Timeout, "it closes the connection",
                            self.serve(lambda connection: connection.close()))

    def test_no_coordinator_takes_the_token(self):
        token = ".".join(("causeway1", 43 * "A", 12 * "0", 22 * "A"))
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.assert_refused(causeway.Unavailable, "nothing listens there",
                                bound.getsockname()[1], timeout=1,
                                join_token=token, tls=self.path("tls"))

    def test_the_run_is_full(self):
        self.start_coordinator(
            self.create_run(LeastSquares(), min_islands=1, max_islands=1))
        with causeway.join(self.address, island="west"):
            with self.assertRaisesRegex(causeway.Timeout, "max_islands"):
                causeway.join(self.address, island="east", timeout=2)

    # --- What can never succeed fails at once: the timeout is long. ---

    def test_the_coordinator_wants_tls(self):
        self.assert_refused(causeway.Unauthenticated, "it speaks TLS",
                            self.serve_tls(self.certificate("server")),
                            timeout=None)

    def test_the_coordinator_speaks_plain_text(self):
        self.start_coordinator(self.create_run(LeastSquares()))
        authority, _ = self.certificate("authority")
        self.assert_refused(causeway.Unauthenticated, "it speaks plain text",
                            self.port, timeout=None, tls_ca=authority)

    def test_the_certificate_is_of_another_authority(self):
        other, _ = self.certificate("other")
        self.assert_refused(causeway.Unauthenticated, "another authority",
                            self.serve_tls(self.certificate("server")),
                            timeout=None, tls_ca=other)

    # --- A name that is in use. ---

    def test_the_name_of_a_process_that_was_killed_is_waited_for(self):
        self.lease_seconds = 5
        self.start_coordinator(self.create_run(LeastSquares(), min_islands=1,
                                               total_steps=100000))
        first = self.start_island("east", step_seconds=0.02)
        first.wait_for("step", 3)
        # It has no checkpoint to say whom it replaces. A process may take
        # longer to start than a lease lasts.
        gate = self.path("gate")
        second = self.start_island("east", step_seconds=0.02, gate=gate)
        second.wait_for("ready")
        first.signal(KILL)
        self.assertEqual(first.wait(), -KILL)
        with open(gate, "w", encoding="utf-8"):
            pass
        second.wait_for("step", 1)
        self.assertIn("its lease ends in", second.output())
        with self.assertRaisesRegex(causeway.NameTaken, "process is alive"):
            causeway.join(self.address, island="east", timeout=None)

    # --- An island that has joined, but is not ready. ---

    def test_nobody_waits_for_an_island_that_has_not_attached(self):
        self.start_coordinator(self.create_run(LeastSquares(), min_islands=1,
                                               total_steps=100000))
        west = self.start_island("west", step_seconds=0.01)
        west.wait_for("step", 3)
        with causeway.join(self.address, island="east") as east:
            begin = time.monotonic()
            # A round that waited for this island would take grace_seconds, 300.
            west.wait_for("step", 150)
            self.assertLess(time.monotonic() - begin, 150)
            table = self.tool("islands", "--coordinator", self.address)
            self.assertIn("loading", table)
            # From now on it takes part.
            model = LeastSquares()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            east.attach(model, optimizer)
            self.assertGreater(east.step, 140)
            for _ in range(20):
                model(1).backward()
                optimizer.step()
        west.signal(TERMINATE)
        self.assert_ends_well(west)


class LoadingTest(ProcessTestCase):
    """Loads the run's values over a slow link."""

    lease_seconds = 15

    def setUp(self):
        super().setUp()
        # Each model has a quarter of a megabyte.
        self.of_run, self.model = (torch.nn.Linear(256, 256) for _ in range(2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.own = self.model.weight.detach().clone()
        self.start_coordinator(
            self.create_run(self.of_run, min_islands=1, fragments=1))
        self.ended = threading.Event()
        self.addCleanup(self.ended.set)

    def join(self, mbit_s, **fields):
        return causeway.join(self.address, island="east", timeout=60,
                             downlink_mbit_s=mbit_s, **fields)

    def signal_when_loading(self, island, number) -> None:
        """Sends this process a signal once it waits for values."""

        def send():
            while island.waiting_for != "loading parameters":
                if self.ended.wait(0.01):
                    return
            os.kill(os.getpid(), number)

        threading.Thread(target=send, daemon=True).start()

    def assert_values(self, expected) -> None:
        self.assertTrue(torch.equal(self.model.weight, expected))

    def test_a_wait_for_values_ends_with_the_timeout(self):
        # The values take two seconds.
        with self.join(1, step_timeout=0.1) as island:
            with self.assertRaisesRegex(causeway.Timeout, "loading parameters"):
                island.attach(self.model, self.optimizer)
            self.assert_values(self.own)
            while island.waiting_for:
                with contextlib.suppress(causeway.Timeout):
                    island.wait()
            self.assertEqual(island.step, 1)
            self.assert_values(self.of_run.weight)

    # Here the values would take ten seconds, and the signal comes before.

    def test_ctrl_c_ends_a_wait_for_values(self):
        with self.assertRaises(KeyboardInterrupt):
            with self.join(0.2) as island:
                self.signal_when_loading(island, INTERRUPT)
                island.attach(self.model, self.optimizer)
        self.assert_values(self.own)

    def test_sigterm_ends_a_wait_for_values(self):
        with self.join(0.2) as island:
            self.signal_when_loading(island, TERMINATE)
            island.attach(self.model, self.optimizer)
            self.assertTrue(island.should_stop)
        self.assert_values(self.own)


if __name__ == "__main__":
    unittest.main()
