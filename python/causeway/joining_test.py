# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests join()'s errors, and how long others wait for an island that has
joined."""

import socket
import ssl
import subprocess
import threading
import time
import unittest

import torch

import causeway
from causeway.testing.least_squares import LeastSquares
from causeway.testing.processes import KILL, TERMINATE, ProcessTestCase


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


if __name__ == "__main__":
    unittest.main()
