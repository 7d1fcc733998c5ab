# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what SIGTERM does."""

import signal
import unittest

from causeway.leaving import LeaveOnSigterm


class LeavingTest(unittest.TestCase):

    def test_signals_at_once_are_one_request(self):
        requests = []
        leaving = LeaveOnSigterm(lambda: requests.append("leave"))
        self.addCleanup(leaving.remove)
        # One of a service manager, and a launcher's copy.
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
        self.assertEqual(requests, ["leave"])


if __name__ == "__main__":
    unittest.main()
