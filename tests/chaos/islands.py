# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of a run with faults, and what the reports have in common.

The coordinator and two islands run as processes: `pair` is one process, and
`four` has four ranks below `causeway-worker --supervise`.
"""

import argparse
import contextlib
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

RANKS = 4
TEXT = "/usr/share/common-licenses/GPL-3"
# The supervisor says this when it starts the ranks again.
AGAIN = "ranks on this host again"
PATIENCE = 90

# Rounds overlap with training and close without an island that is late, so that
# the other island does not wait for the one with the faults.
RUN = """
name: "ranks"
model { layers: 2 hidden_size: 32 intermediate_size: 64 heads: 2
        sequence_length: 32 }
training { total_steps: 1000000 batch_size: 8 micro_batch_size: 1
           learning_rate: 1e-3 inner_algorithm: DDP }
synchronization { inner_steps_per_round: 20 overlap_steps: 8
                  max_overlap_steps: 11 }
membership { min_islands: 2 grace_seconds: 1 lease_seconds: 10
             heartbeat_seconds: 0.5 }
"""


def await_that(condition, what):
    """Returns the first value of condition() that is true, and the time."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value, time.monotonic()
        time.sleep(0.02)
    raise TimeoutError("in vain: " + what)


class Log:
    """A file that a process writes, read from a mark on."""

    def __init__(self, path):
        self.path = path
        self.mark = 0

    def set_mark(self):
        self.mark = self.path.stat().st_size

    def since_mark(self):
        with open(self.path, errors="replace") as file:
            file.seek(self.mark)
            return file.read()

    def steps(self):
        """Returns the steps in complete lines since the mark."""
        text = self.since_mark()
        return [int(step) for step in re.findall(r"step (\d+)/\d+.*\n", text)]

    def step_times(self):
        """Returns the times between the steps since the mark, by the log."""
        times = [int(hours) * 3600 + int(minutes) * 60 + float(seconds)
                 for hours, minutes, seconds in
                 re.findall(r" (\d\d):(\d\d):([\d.]+) .* step \d+/",
                            self.since_mark())]
        # A day may end between two of them.
        return [(later - one) % 86400 for one, later in zip(times, times[1:])]


class Trial:
    """The coordinator and the islands, in a directory."""

    # The coordinator's address and run.
    host = "127.0.0.1"
    run = RUN

    def __init__(self, options, directory, memory):
        self.options = options
        self.directory = directory
        self.memory = memory
        self.processes = {}
        (directory / "run.textproto").write_text(self.run)
        self.start_coordinator(0)
        port = directory / "port"
        await_that(lambda: port.exists() and port.read_text(), "a port")
        self.port = port.read_text().strip()
        self.address = f"{self.host}:{self.port}"
        self.start("events", "cli/causeway", "events", "--follow",
                   "--coordinator", self.address)
        self.events = Log(self.directory / "events.log")
        self.start_island("pair")
        self.start_four()

    def start(self, name, program, *arguments, within=(), environment=None):
        """Starts a program by the command `within`."""
        log = open(self.directory / (name + ".log"), "ab")
        self.processes[name] = subprocess.Popen(
            [*within, f"{self.options.programs}/{program}",
             *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def start_coordinator(self, port):
        self.start("coordinator", "server/causeway-coordinator", "--config",
                   self.directory / "run.textproto", "--state_dir",
                   self.directory / "state", "--listen",
                   f"{self.host}:{port}", "--insecure", "--port_file",
                   self.directory / "port")

    def restart_coordinator(self):
        """Starts a coordinator that was killed as a service manager would."""
        time.sleep(0.5)
        self.start_coordinator(self.port)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def start_island(self, name, *arguments, process=None, **how):
        self.start(process or name, "worker/causeway-worker", "--coordinator",
                   self.address, "--island", name, "--data", TEXT, "--threads",
                   1, "--simulated_step_seconds", self.options.step_seconds,
                   "--log_seconds", 0.01, *arguments, **how)

    def start_four(self):
        self.start_island("four", "--supervise", RANKS, *self.four_flags(),
                          "--checkpoint_dir", self.directory / "checkpoint",
                          "--recent_checkpoint_dir",
                          self.memory / "checkpoint")
        self.log = Log(self.directory / "four.log")

    def four_flags(self):
        """Returns the flags of a supervisor of the island `four`."""
        return ["--on_rank_fault", "act", "--hang_floor",
                self.options.hang_floor]

    def start_four_again(self):
        """Starts it once more, and sets the mark to the end of its old log."""
        mark = self.log.path.stat().st_size
        self.start_four()
        self.log.mark = mark

    def ranks(self):
        """Returns the process ids of the ranks, by number."""
        pid = self.processes["four"].pid
        path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        found = {}
        for child in path.read_text().split():
            command = pathlib.Path(f"/proc/{child}/cmdline").read_text()
            numbers = re.findall(r"--island_rank=(\d+)", command)
            if numbers:
                found[int(numbers[-1])] = int(child)
        return found

    def await_text(self, text):
        """Sets the mark behind a text of the island's log; returns the time."""
        _, now = await_that(lambda: text in self.log.since_mark(), text)
        self.log.mark += self.log.since_mark().index(text) + len(text)
        return now

    def await_restart(self):
        """Sets the mark to where the supervisor starts the ranks again."""
        self.await_text(AGAIN)

    def await_steps(self, count):
        """Waits until `four` has made steps since the mark; returns them."""
        return await_that(
            lambda: len(self.log.steps()) >= count and self.log.steps(),
            f"{count} steps of island four")

    def tokens(self):
        text = subprocess.run(
            [f"{self.options.programs}/cli/causeway", "status", "--json",
             "--coordinator", self.address], check=True,
            stdout=subprocess.PIPE).stdout
        return int(json.loads(text)["run"].get("tokens_merged", 0))

    def await_merge(self):
        """Returns the tokens merged after the next merge, and its time."""
        before = self.tokens()
        more, now = await_that(lambda: self.tokens() - before, "a merge")
        return before + more, now

    def end(self):
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def lost_steps(last, steps):
    """Returns how many steps up to `last` are made again in `steps`."""
    # An island without a checkpoint continues at the run's step.
    return max(0, last + 1 - steps[0])


def note_blame(result, kind, text):
    """Records an event that blames somebody `rightly`, `wrongly`, ...."""
    result["blamed_" + kind] = result.get("blamed_" + kind, 0) + 1
    result.setdefault("events", []).append(text)


def in_time(fault, trial, chance, result):
    """Makes a fault and prints its result; returns False after a timeout."""
    try:
        fault(trial, chance, result)
    except TimeoutError as error:
        print(error, trial.log.since_mark(), trial.events.since_mark(),
              file=sys.stderr)
        return False
    finally:
        print(json.dumps(result), flush=True)
    return True


def spread(results, key, most):
    """Returns the median of the results that have `key`, and the most."""
    values = [r[key] for r in results if key in r]
    return {key: statistics.median(values) if values else None,
            most: max(values, default=None)}


def measured(trial, act):
    """Returns the tokens merged while act() runs, and the seconds.

    The time is from merge to merge, because a round has more tokens than faults
    cost.
    """
    tokens, begin = trial.await_merge()
    act()
    merged, end = trial.await_merge()
    return merged - tokens, end - begin


@contextlib.contextmanager
def running(make_trial, options, *arguments):
    """Yields make_trial(options, directory, memory, *arguments), and ends it.

    Prints the ends of all logs if an exception comes.
    """
    # No process is left behind if this one is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as directory, \
            tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        try:
            trial = make_trial(options, pathlib.Path(directory),
                               pathlib.Path(memory), *arguments)
            try:
                yield trial
            finally:
                trial.end()
        except BaseException:
            for log in pathlib.Path(directory).glob("*.log"):
                print(f"--- {log.name}\n{log.read_text()[-4000:]}",
                      file=sys.stderr)
            raise


def make_parser(description, count, kinds):
    """Returns a parser of the options that ranks.py and links.py share."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True,
                        help="the folder of Bazel's outputs")
    parser.add_argument("--json", help="write the report there")
    parser.add_argument("--count", type=int, default=count,
                        help="faults of each kind (%(default)s)")
    parser.add_argument("--kinds", default=",".join(kinds),
                        help="some of the kinds above, with commas (all)")
    parser.add_argument("--step_seconds", type=float, default=0.2,
                        help="simulated time of an inner step (%(default)s)")
    parser.add_argument("--hang_floor", type=float, default=2,
                        help="of causeway-worker (%(default)s)")
    parser.add_argument("--seed", type=int, default=1,
                        help="decides the faults (%(default)s)")
    return parser


def write_report(report, path):
    """Prints the report, and writes it to a path if one is given."""
    text = json.dumps(report, indent=2) + "\n"
    print(text, end="")
    if path:
        pathlib.Path(path).write_text(text)
