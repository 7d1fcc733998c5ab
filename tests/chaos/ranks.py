# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Faults inside an island that is supervised.

  ranks.py --programs DIR [--count N] [--json FILE] ...

A coordinator and two islands run as processes: `pair` is one process, and
`four` has four ranks below `causeway-worker --supervise`. First they train
without faults. Then faults happen at random moments, COUNT of each kind:

  kill, stop        a rank of `four` gets SIGKILL or SIGSTOP
  kill_two          two of its ranks get SIGKILL at once
  kill_again        a rank gets SIGKILL, and again before it has made a step
  kill_coordinator  a rank and the coordinator do
  kill_supervisor   the supervisor does
  slow              a rank runs a fifth of the time until it is blamed; not
                    rank 0, which alone waits for the simulated time of a step

What no supervisor watches is started again after half a second, as a service
manager would do.

The report has, for each kind of fault:

  count           faults
  found           how many the supervisor, or a slow rank's island, has noticed
  found_seconds   from the fault until then: median and longest
  blamed_rightly, blamed_wrongly
                  how many events of the coordinator have named the right rank,
                  and another one
  repaired        how many times the island has trained again without a human,
                  or was found to be well after a slow rank had its time again
  seconds         from the fault until a step is done, or the slow rank's time
                  until the coordinator knows: median and longest
  steps_lost      steps that the island had made since the checkpoint that it
                  took up: median and most
  left_behind     processes of ranks that outlived their supervisor

and, for all,

  goodput   tokens merged per second, relative to the run without faults
  overhead  with --pairs N: what a supervisor, its stamps and checkpoints in
            memory cost an island of two ranks that compute all the time and
            have no faults. N pairs of runs, with and without these, in turns;
            the share by which steps take longer (`seconds`) and more processor
            time (`processor`): median, least and most

Exit codes: 0 every fault was found and repaired, and none was blamed on
another rank; 1 otherwise.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 4
TEXT = "/usr/share/common-licenses/GPL-3"
KINDS = ("kill", "stop", "kill_two", "kill_again", "kill_coordinator",
         "kill_supervisor", "slow")
# The event in which the coordinator blames a rank of `four`.
BLAME = r"rank_(?:dead|stuck|slow) .*island four: rank (\d+)"
# What the supervisor says when it starts the ranks again.
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
membership { min_islands: 2 grace_seconds: 1 lease_seconds: 30
             heartbeat_seconds: 0.5 }
"""

# Steps of an island that computes all the time, and those before that.
STEPS = 150
FIRST_STEPS = 30
# Two ranks of an island without a simulated time, with more parameters.
BUSY = """
name: "busy"
model { layers: 4 hidden_size: 160 intermediate_size: 416 heads: 5
        sequence_length: 64 }
training { total_steps: 1000000 batch_size: 8 micro_batch_size: 1
           learning_rate: 1e-3 inner_algorithm: DDP }
synchronization { inner_steps_per_round: 50 overlap_steps: 10 }
"""


def await_that(condition, what):
    """Returns the first value of condition() that is true, and when."""
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


class Trial:
    """The coordinator and the islands, in a directory."""

    # Where the coordinator listens, and its run.
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

    def start(self, name, program, *arguments, within=()):
        """Starts a program by the command `within`."""
        log = open(self.directory / (name + ".log"), "ab")
        self.processes[name] = subprocess.Popen(
            [*within, f"{self.options.programs}/{program}",
             *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_coordinator(self, port):
        self.start("coordinator", "server/causeway-coordinator", "--config",
                   self.directory / "run.textproto", "--state_dir",
                   self.directory / "state", "--listen",
                   f"{self.host}:{port}", "--insecure", "--port_file",
                   self.directory / "port")

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def start_island(self, name, *arguments, process=None, within=()):
        self.start(process or name, "worker/causeway-worker", "--coordinator",
                   self.address, "--island", name, "--data", TEXT, "--threads",
                   1, "--simulated_step_seconds", self.options.step_seconds,
                   "--log_seconds", 0.01, *arguments, within=within)

    def start_four(self):
        self.start_island("four", "--supervise", RANKS, "--on_rank_fault",
                          "act", "--hang_floor", self.options.hang_floor,
                          "--checkpoint_dir", self.directory / "checkpoint",
                          "--recent_checkpoint_dir",
                          self.memory / "checkpoint")
        self.log = Log(self.directory / "four.log")

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

    def await_restart(self):
        """Sets the mark to where the supervisor starts the ranks again."""
        await_that(lambda: AGAIN in self.log.since_mark(), "a restart")
        self.log.mark += self.log.since_mark().index(AGAIN) + len(AGAIN)

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
        """Returns the tokens merged after the next merge, and when that was."""
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


def left_behind(pids):
    """Returns how many of the processes still run after a second."""

    def runs(pid):
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            return False
        return not re.search(r"^State:\s+Z", status, re.MULTILINE)

    end = time.monotonic() + 1
    while time.monotonic() < end:
        alive = [pid for pid in pids if runs(pid)]
        if not alive:
            return 0
        time.sleep(0.01)
    return len(alive)


def await_blame(trial, result):
    """Waits until the coordinator blames a rank; returns when that was."""
    # Rank 0 reports its own fault with its first heartbeat.
    event, now = await_that(
        lambda: re.search(BLAME, trial.events.since_mark()), "an event")
    result["blamed"] = int(event.group(1))
    return now


def slow_down(trial, pid, result, begin):
    """Lets the process run a fifth of the time until it is blamed."""
    done = threading.Event()

    def hold():
        # The supervisor takes a rank for stuck that stands still for 0.5 s.
        while not done.wait(0.06):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.24)
            os.kill(pid, signal.SIGCONT)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        result["found_seconds"] = await_blame(trial, result) - begin
    finally:
        done.set()
        holder.join()
    begin = time.monotonic()
    # On a busy machine another rank may be the slowest then.
    rank = result["blamed"]
    others = rf"(?:ranks_even|_slow) .*island four: (?!rank {rank} )"
    _, well = await_that(
        lambda: re.search(others, trial.events.since_mark()), "a fast rank")
    result["seconds"] = well - begin


def strike(trial, kind, pids, result, begin):
    """Makes a fault that stops the island, and waits for what follows."""
    if kind == "kill_supervisor":
        everyone = list(trial.ranks().values())
        trial.kill("four")
        result["left_behind"] = left_behind(everyone)
        time.sleep(0.5)
        mark = trial.log.path.stat().st_size
        trial.start_four()
        trial.log.mark = mark
        return
    for pid in pids:
        os.kill(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    if kind == "kill_coordinator":
        trial.kill("coordinator")
    _, found = await_that(
        lambda: re.search("was killed|has ended|is stuck",
                          trial.log.since_mark()), "a verdict")
    result["found_seconds"] = found - begin
    if kind == "kill_coordinator":
        time.sleep(0.5)
        trial.start_coordinator(trial.port)
    trial.await_restart()
    if kind == "kill_again":
        (rank,) = result["ranks"]
        pid, _ = await_that(lambda: trial.ranks().get(rank), "the rank")
        os.kill(pid, signal.SIGKILL)
        trial.await_restart()


def note_lost_steps(trial, last, result):
    """Notes how many steps up to `last` are made again, if any are."""
    resumed = re.search(r"from the checkpoint of step (\d+)",
                        trial.log.since_mark())
    if resumed:
        result["steps_lost"] = last - int(resumed.group(1))


def one_fault(trial, kind, chance, result):
    """Writes to `result` what became of a fault. Raises TimeoutError."""
    trial.log.set_mark()
    trial.await_steps(chance.randint(5, 25))
    time.sleep(chance.uniform(0, trial.options.step_seconds))
    ranks = chance.sample(range(1 if kind == "slow" else 0, RANKS),
                          2 if kind == "kill_two" else 1)
    pids = [trial.ranks()[rank] for rank in ranks]
    last = max(trial.log.steps())
    trial.log.set_mark()
    trial.events.set_mark()
    result["ranks"] = ranks
    begin = time.monotonic()
    if kind == "slow":
        slow_down(trial, pids[0], result, begin)
        return
    strike(trial, kind, pids, result, begin)
    _, repaired = trial.await_steps(1)
    result["seconds"] = repaired - begin
    note_lost_steps(trial, last, result)
    if kind != "kill_supervisor":
        await_blame(trial, result)


def in_time(one_fault, trial, kind, chance, result):
    """Makes a fault and prints its result; returns False after a timeout."""
    try:
        one_fault(trial, kind, chance, result)
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


def summary(kind, results):
    """Returns the report on the faults of one kind."""
    report = {
        "count": len(results),
        "repaired": sum("seconds" in r for r in results),
        **spread(results, "seconds", "seconds_longest"),
        **spread(results, "steps_lost", "steps_lost_most"),
        "left_behind": sum(r["left_behind"] for r in results),
    }
    if kind != "kill_supervisor":
        blamed = [r for r in results if "blamed" in r]
        right = sum(r["blamed"] in r["ranks"] for r in blamed)
        report.update({
            "found": sum("found_seconds" in r for r in results),
            **spread(results, "found_seconds", "found_seconds_longest"),
            "blamed_rightly": right,
            "blamed_wrongly": len(blamed) - right,
        })
    return report


def measured(trial, act):
    """Returns the tokens merged per second while act() runs.

    The time is from merge to merge, because a round has more tokens than faults
    cost.
    """
    tokens, begin = trial.await_merge()
    act()
    merged, end = trial.await_merge()
    return (merged - tokens) / (end - begin)


def processor_seconds(pid):
    """Returns the processor time of a process and its children so far."""
    ticks = 0
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    for process in [pid, *map(int, children.split())]:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class BusyTrial(Trial):
    """A coordinator, and an island of two ranks that compute all the time."""

    run = BUSY

    def __init__(self, options, directory, memory, watched):
        self.watched = watched
        super().__init__(options, directory, memory)

    def start_island(self, name, *arguments, **options):
        # Only the other one trains.
        if name != "pair":
            super().start_island(name, *arguments, **options)

    def start_four(self):
        self.log = Log(self.directory / "rank0.log")
        if self.watched:
            self.start_island(
                "busy", "--supervise", 2, "--on_rank_fault", "act",
                "--checkpoint_dir", self.directory / "checkpoint",
                "--recent_checkpoint_dir", self.memory / "checkpoint",
                "--threads", 2, process="rank0")
            return
        for rank in range(2):
            self.start_island(
                "busy", "--island_size", 2, "--island_rank", rank,
                "--island_leader", "127.0.0.2:" + self.port,
                "--checkpoint_dir", self.directory / f"checkpoint{rank}",
                "--threads", 1,
                process=f"rank{rank}")

    def measure(self):
        """Returns the seconds and the processor time of a step."""

        def spent():
            return sum(processor_seconds(process.pid)
                       for name, process in self.processes.items()
                       if name.startswith("rank"))

        self.await_steps(FIRST_STEPS)
        begin = time.monotonic()
        first, processor = max(self.log.steps()), spent()
        self.await_steps(FIRST_STEPS + STEPS)
        steps = max(self.log.steps()) - first
        return {"seconds": (time.monotonic() - begin) / steps,
                "processor": (spent() - processor) / steps}


def overhead(options):
    """Returns what watching costs, by pairs of runs."""
    options = argparse.Namespace(**{**vars(options), "step_seconds": 0})
    runs = {True: [], False: []}
    for number in range(options.pairs):
        for watched in (True, False) if number % 2 else (False, True):
            with tempfile.TemporaryDirectory() as directory, \
                    tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
                trial = BusyTrial(options, pathlib.Path(directory),
                                  pathlib.Path(memory), watched)
                try:
                    runs[watched].append(trial.measure())
                finally:
                    trial.end()
    report = {}
    for what in ("seconds", "processor"):
        shares = [one[what] / other[what] - 1
                  for one, other in zip(runs[True], runs[False])]
        report[what] = {"median": statistics.median(shares),
                        "least": min(shares), "most": max(shares)}
    return report


def run(options, directory, memory):
    """Returns the report, and whether all is as it should be."""
    chance = random.Random(options.seed)
    trial = Trial(options, directory, memory)
    results = []

    def faults():
        kinds = [kind for kind in KINDS for _ in range(options.count)]
        chance.shuffle(kinds)
        begin = time.monotonic()
        for number, kind in enumerate(kinds):
            due = begin + number * options.fault_seconds
            time.sleep(max(0, due - time.monotonic()))
            results.append({"kind": kind, "left_behind": 0})
            if not in_time(one_fault, trial, kind, chance, results[-1]):
                return
        time.sleep(max(0, begin + len(kinds) * options.fault_seconds -
                       time.monotonic()))

    try:
        trial.await_steps(10)
        calm = measured(trial, lambda: time.sleep(options.calm_seconds))
        stormy = measured(trial, faults)
    finally:
        trial.end()
    report = {"goodput": stormy / calm if calm else None,
              "fault_seconds": options.fault_seconds,
              "seed": options.seed}
    if options.pairs > 0:
        report["overhead"] = overhead(options)
    for kind in KINDS:
        report[kind] = summary(kind, [r for r in results if r["kind"] == kind])
    good = all(report[kind]["repaired"] == options.count and
               report[kind]["left_behind"] == 0 and
               report[kind].get("blamed_rightly", options.count) ==
               options.count
               for kind in KINDS)
    return report, good


def report_to(run, options):
    """Calls run(options, directory, memory), prints and writes the report.

    Returns the exit code. Prints the ends of all logs if an exception comes.
    """
    with tempfile.TemporaryDirectory() as directory, \
            tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        try:
            report, good = run(options, pathlib.Path(directory),
                               pathlib.Path(memory))
        except BaseException:
            for log in pathlib.Path(directory).glob("*.log"):
                print(f"--- {log.name}\n{log.read_text()[-4000:]}",
                      file=sys.stderr)
            raise
    text = json.dumps(report, indent=2) + "\n"
    print(text, end="")
    if options.json:
        pathlib.Path(options.json).write_text(text)
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--json")
    parser.add_argument("--fault_seconds", type=float, default=15)
    parser.add_argument("--calm_seconds", type=float, default=60)
    parser.add_argument("--step_seconds", type=float, default=0.2)
    parser.add_argument("--hang_floor", type=float, default=2)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    return report_to(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
