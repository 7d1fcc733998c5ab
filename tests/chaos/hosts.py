# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Losses of whole hosts of an island; links.py explains the report.

Each host of `four` has two ranks, and hosts 0 and 1 may lead. A host that is
lost sends and receives nothing from one moment to the next, its processes are
killed, and what it had in memory is gone.
"""

import random
import re
import shutil
import time

import islands
from islands import RUN, Log, await_that, lost_steps, note_blame
from network import HOSTS, HUB, LEADERS, Network, address

RANKS_PER_HOST = 2
PROCESSES = HOSTS * RANKS_PER_HOST
# The event in which the coordinator blames a rank, or processes.
DEAD = r"rank_(?:dead|stuck|corrupt) .*island four: (.*)"


class HostTrial(islands.Trial):
    """The coordinator and the islands."""

    host = HUB
    # Eight ranks can share the batch, and the six of three hosts.
    run = RUN.replace("batch_size: 8", "batch_size: 24").replace(
        "lease_seconds: 10", "lease_seconds: 4")

    def __init__(self, options, directory, memory):
        self.network = Network()
        (directory / "secret").write_text(f"{random.random()}\n" * 4)
        super().__init__(options, directory, memory)

    def start_four(self):
        self.leader = 0
        for host in range(HOSTS):
            self.start_host(host)
        self.log = Log(self.directory / "host0.log")
        self.await_text(f"trains on {PROCESSES} of {PROCESSES}")

    def start_host(self, host):
        copies = []
        if host in LEADERS:
            (other,) = set(LEADERS) - {host}
            copies = ["--keep_checkpoint_copy", address(host) + ":7101",
                      "--copy_checkpoint_to", address(other) + ":7101"]
        first = host * RANKS_PER_HOST
        leaders = ",".join(f"{leader * RANKS_PER_HOST}={address(leader)}:7100"
                           for leader in LEADERS)
        self.start_island(
            "four", "--supervise", RANKS_PER_HOST, "--island_size", PROCESSES,
            "--min_island_size", 2, "--island_rank", first, "--island_leader",
            leaders, "--rank_host", address(host), "--rank_secret_file",
            self.directory / "secret", *self.four_flags(), "--shrink_after", 2,
            "--recent_checkpoint_dir", self.memory / f"checkpoint{host}",
            *copies, within=self.network.within(host), process=f"host{host}")

    def end(self):
        super().end()
        self.network.end()


def judge(trial, crew, host, result):
    """Records whom the events since the mark blame.

    `crew` has the processes in order of their ranks.
    """
    for text in re.findall(DEAD, trial.events.since_mark()):
        processes = [int(number) for number in re.findall(
            r"\d+", "".join(re.findall(r"without ([\d, ]+)", text)))]
        processes += [crew[int(rank)]
                      for rank in re.findall(r"^rank (\d+) ", text)]
        right = all(process // RANKS_PER_HOST == host
                    for process in processes)
        kind = "rightly" if right and processes else "wrongly"
        note_blame(result, kind, text)


def lose_host(trial, chance, result):
    """Writes the outcome of a fault to `result`. Raises TimeoutError."""
    leads = result["kind"] == "lose_leader"
    host = trial.leader if leads else chance.choice(
        [host for host in range(HOSTS) if host != trial.leader])
    trial.log.set_mark()
    trial.await_steps(chance.randint(25, 45))
    time.sleep(chance.uniform(0, trial.options.step_seconds))
    last = max(trial.log.steps())
    crews = re.findall(r"trains on \d of \d processes: (.*)",
                       trial.log.path.read_text())
    crew = [int(process) for process in crews[-1].split(", ")]
    result["host"] = host
    if leads:
        (trial.leader,) = set(LEADERS) - {host}
        trial.log = Log(trial.directory / f"host{trial.leader}.log")
    trial.log.set_mark()
    trial.events.set_mark()
    begin = time.monotonic()
    trial.network.cut_off(host)
    trial.kill(f"host{host}")
    shutil.rmtree(trial.memory / f"checkpoint{host}", ignore_errors=True)
    await_repair(trial, last, result, begin)
    judge(trial, crew, host, result)
    time.sleep(trial.options.cut_seconds)
    trial.network.take_in(host)
    # The killed processes may have written before they ended.
    shutil.rmtree(trial.memory / f"checkpoint{host}", ignore_errors=True)
    healed = time.monotonic()
    trial.start_host(host)
    trial.await_text(f"trains on {PROCESSES} of {PROCESSES}")
    _, whole = trial.await_steps(1)
    result["whole_seconds"] = whole - healed


def await_repair(trial, last, result, begin):
    """Waits until the island has made a step without the host."""
    _, found = await_that(
        lambda: re.search(DEAD, trial.events.since_mark()), "an event")
    result["found_seconds"] = found - begin
    missing = PROCESSES - RANKS_PER_HOST
    trial.await_text(f"trains on {missing} of {PROCESSES}")
    steps, repaired = trial.await_steps(1)
    result["seconds"] = repaired - begin
    result["steps_lost"] = lost_steps(last, steps)
