# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests who leads when hosts are lost."""

import socket
import threading
import types
import unittest

from causeway.succession import Succession, _break_connections


class SuccessionTest(unittest.TestCase):

    def setUp(self):
        # They answer only when they listen.
        self.hosts = []
        for number in range(3):
            server = socket.socket()
            self.addCleanup(server.close)
            server.bind((f"127.0.0.{number + 1}", 0))
            self.hosts.append(server)
        self.endpoints = ["%s:%d" % server.getsockname()
                          for server in self.hosts]

    def choose(self, own, patience):
        """Returns what host `own` passes to torchrun: the number of the
        endpoint, and whether it leads."""
        arguments = types.SimpleNamespace(
            rdzv_backend="c10d", rdzv_endpoint=",".join(self.endpoints),
            rdzv_conf=f"last_call_timeout={patience}", local_addr=own)
        Succession(arguments, lambda text: None).choose()
        before, _, leads = arguments.rdzv_conf.partition(",is_host=")
        self.assertEqual(before, f"last_call_timeout={patience}")
        return self.endpoints.index(arguments.rdzv_endpoint), leads == "true"

    def test_the_first_leads_if_nobody_answers(self):
        self.assertEqual(self.choose("127.0.0.1", 1000), (0, True))

    def test_another_leads_if_nobody_answers_for_some_time(self):
        self.assertEqual(self.choose("127.0.0.3", 0.1), (2, True))

    def test_the_first_follows_its_successor(self):
        self.hosts[2].listen()
        self.assertEqual(self.choose("127.0.0.1", 1000), (2, False))
        self.hosts[1].listen()
        self.assertEqual(self.choose("127.0.0.1", 1000), (1, False))

    def test_others_wait_for_the_leader(self):
        for number, own in ((1, "127.0.0.2"), (0, "127.0.0.4")):
            threading.Timer(0.2, self.hosts[number - 1].listen).start()
            self.assertFalse(self.choose(own, 1000)[1])

    def test_breaks_the_connections_to_a_host_that_is_lost(self):
        # A launcher may have passed sockets of its own, such as stdin.
        for end in socket.socketpair():
            self.addCleanup(end.close)
        kept, broken = (self.connected(host) for host in self.hosts[:2])
        _break_connections(self.hosts[1].getsockname()[1])
        self.assertEqual(broken.recv(1), b"")
        kept.setblocking(False)
        with self.assertRaises(BlockingIOError):
            kept.recv(1)

    def connected(self, host):
        host.listen()
        connection = socket.create_connection(host.getsockname())
        self.addCleanup(connection.close)
        return connection

    def test_needs_a_store_that_another_host_can_serve(self):
        arguments = types.SimpleNamespace(rdzv_backend="static")
        with self.assertRaisesRegex(ValueError, "--rdzv-backend=c10d"):
            Succession(arguments, print)


if __name__ == "__main__":
    unittest.main()
