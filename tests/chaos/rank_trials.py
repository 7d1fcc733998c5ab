# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Islands of four ranks that ranks.py needs beside the plain one."""

import mmap
import os

import islands
from islands import RANKS, RUN, Log

# The hosts of SpareTrial with one process each, by the process's number.
LONE_HOSTS = (3, 4, 5)


class SpareTrial(islands.Trial):
    """A host with three ranks, one with the fourth, and two with a spare each.

    Every host is a supervisor, at its own address of this machine.
    """

    def start_four(self):
        # The lone host that has rank 3.
        self.member = LONE_HOSTS[0]
        self.start_host(0, RANKS - 1)
        self.log = Log(self.directory / "host0.log")
        for host in LONE_HOSTS:
            self.start_host(host, 1)
            if host == self.member:
                self.await_text("trains on 4 of 4")

    def start_host(self, first, count):
        self.start_island(
            "four", "--supervise", count, "--island_size", RANKS,
            "--island_rank", first, "--island_leader",
            "127.0.0.2:" + self.port, "--rank_host", "127.0.0.1",
            *self.four_flags(),
            "--checkpoint_dir", self.directory / f"checkpoint{first}",
            "--recent_checkpoint_dir", self.memory / f"checkpoint{first}",
            process=f"host{first}")


class AuditTrial(islands.Trial):
    """A host with RANKS ranks, of which one or more may compute wrong numbers.

    The processes have preloaded a library (wrong_numbers.cc) that reads from a
    file which processes do.
    """

    run = RUN.replace("training {", "training { audit_steps: 10")
    ranks_at_start = RANKS

    def __init__(self, options, directory, memory):
        path = directory / "wrong"
        path.write_bytes(bytes(mmap.PAGESIZE))
        self.wrong = path
        super().__init__(options, directory, memory)

    def start_four(self):
        library = f"{self.options.programs}/tests/chaos/libwrong_numbers.so"
        environment = {**os.environ, "LD_PRELOAD": library,
                       "CAUSEWAY_WRONG_NUMBERS": str(self.wrong)}
        self.start_island(
            "four", "--supervise", self.ranks_at_start, *self.four_flags(),
            *self.crew_flags(),
            "--checkpoint_dir", self.directory / "checkpoint",
            "--recent_checkpoint_dir", self.memory / "checkpoint",
            environment=environment)
        self.log = Log(self.directory / "four.log")

    def crew_flags(self):
        return ["--min_island_size", 2, "--shrink_after", 1]

    def compute_wrong(self, process, wrong):
        """Makes the process compute wrong or right numbers from now on."""
        with open(self.wrong, "r+b") as file:
            file.seek(process)
            file.write(bytes([wrong]))


class AuditedPairTrial(AuditTrial):
    """Two audited ranks, both of which are needed."""

    ranks_at_start = 2

    def crew_flags(self):
        return []
