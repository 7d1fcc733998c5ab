# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The faults of ranks.py.

Each function makes one, and writes its outcome to a dictionary. It raises
TimeoutError if there is none.
"""

import contextlib
import os
import pathlib
import re
import signal
import threading
import time

from islands import AGAIN, RANKS, await_that, lost_steps

# The event in which the coordinator blames a rank of `four`, or its host.
BLAME = (r"rank_(?:dead|stuck|slow|corrupt) .*island four: "
         r"(?:(all ranks of a host)|rank (\d+))")
VERDICT = r"was killed|has ended|is stuck|are stuck"
# The starts without progress after which a supervisor gives up, and its exit
# code then.
STARTS = 4
GAVE_UP = 3
HOST = "host"


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


def blamed(trial):
    """Returns whom the events since the mark blame: ranks, or the host."""
    return [HOST if host else int(rank)
            for host, rank in re.findall(BLAME, trial.events.since_mark())]


def await_blame(trial, result):
    """Waits until the coordinator blames somebody; returns the time."""
    # Rank 0 reports its own fault with its first heartbeat.
    result["blamed"], now = await_that(lambda: blamed(trial), "an event")
    return now


def await_moment(trial, chance):
    """Waits for a moment in which a fault may happen; returns it."""
    trial.log.set_mark()
    trial.await_steps(chance.randint(5, 25))
    time.sleep(chance.uniform(0, trial.options.step_seconds))
    trial.last = max(trial.log.steps())
    trial.log.set_mark()
    trial.events.set_mark()
    return time.monotonic()


def choose(trial, chance, result, count=1, first=0):
    """Returns the processes of ranks that chance decides."""
    result["ranks"] = chance.sample(range(first, RANKS), count)
    running = trial.ranks()
    return [running[rank] for rank in result["ranks"]]


def await_verdict(trial, result, begin):
    _, found = await_that(
        lambda: re.search(VERDICT, trial.log.since_mark()), "a verdict")
    result["found_seconds"] = found - begin


def await_repair(trial, result, begin):
    """Waits for a step of the island, and for whom the coordinator blames."""
    steps, repaired = trial.await_steps(1)
    result["steps_lost"] = lost_steps(trial.last, steps)
    await_blame(trial, result)
    result["seconds"] = repaired - begin


def hit(number, count=1):
    """Returns a fault in which `count` ranks get a signal at once."""

    def fault(trial, chance, result):
        begin = await_moment(trial, chance)
        for pid in choose(trial, chance, result, count):
            os.kill(pid, number)
        await_verdict(trial, result, begin)
        trial.await_restart()
        await_repair(trial, result, begin)

    return fault


def stop_host(trial, chance, result):
    """All ranks get SIGSTOP."""
    begin = await_moment(trial, chance)
    for pid in trial.ranks().values():
        os.kill(pid, signal.SIGSTOP)
    result["ranks"] = [HOST]
    await_verdict(trial, result, begin)
    trial.await_restart()
    await_repair(trial, result, begin)


def kill_coordinator(trial, chance, result):
    """A rank and the coordinator get SIGKILL at once."""
    begin = await_moment(trial, chance)
    (pid,) = choose(trial, chance, result)
    os.kill(pid, signal.SIGKILL)
    trial.kill("coordinator")
    await_verdict(trial, result, begin)
    trial.restart_coordinator()
    trial.await_restart()
    await_repair(trial, result, begin)


def kill_coordinator_in_plan(trial, chance, result):
    """The coordinator gets SIGKILL after the verdict on a rank."""
    begin = await_moment(trial, chance)
    (pid,) = choose(trial, chance, result)
    os.kill(pid, chance.choice((signal.SIGKILL, signal.SIGSTOP)))
    await_verdict(trial, result, begin)
    trial.kill("coordinator")
    trial.restart_coordinator()
    trial.await_restart()
    await_repair(trial, result, begin)


def kill_repeatedly(trial, chance, result, times):
    """Kills a rank each time that it is back; returns the first time."""
    begin = await_moment(trial, chance)
    choose(trial, chance, result)
    (rank,) = result["ranks"]
    for number in range(times):
        pid, _ = await_that(lambda: trial.ranks().get(rank), "the rank")
        os.kill(pid, signal.SIGKILL)
        if number == 0:
            await_verdict(trial, result, begin)
        if number + 1 < times:
            trial.await_restart()
    return begin


def flap(times):
    """Returns a fault that kills a rank `times` times without progress."""

    def fault(trial, chance, result):
        begin = kill_repeatedly(trial, chance, result, times)
        trial.await_restart()
        await_repair(trial, result, begin)

    return fault


def flap_to_the_end(trial, chance, result):
    """A rank is killed so often that the supervisor gives up."""
    begin = kill_repeatedly(trial, chance, result, STARTS + 1)
    await_blame(trial, result)
    await_end(trial, result, begin)


def await_end(trial, result, begin):
    """Waits until the supervisor has given up; starts the island again."""
    code = trial.processes["four"].wait(20)
    if code != GAVE_UP:
        raise TimeoutError(f"the supervisor has ended with code {code}")
    trial.await_merge()
    _, merged = trial.await_merge()
    result["ended_seconds"] = merged - begin
    trial.start_four_again()
    trial.await_steps(1)


def kill_supervisor(trial, chance, result):
    """The supervisor gets SIGKILL, and is started again."""
    begin = await_moment(trial, chance)
    everyone = list(trial.ranks().values())
    trial.kill("four")
    result["left_behind"] = left_behind(everyone)
    time.sleep(0.5)
    trial.start_four_again()
    steps, repaired = trial.await_steps(1)
    result["steps_lost"] = lost_steps(trial.last, steps)
    result["seconds"] = repaired - begin


def stop_supervisor(trial, chance, result):
    """The supervisor gets SIGSTOP, and SIGCONT some seconds later."""
    await_moment(trial, chance)
    before = trial.ranks()
    supervisor = trial.processes["four"]
    supervisor.send_signal(signal.SIGSTOP)
    time.sleep(chance.uniform(3, 10))
    supervisor.send_signal(signal.SIGCONT)
    trial.await_steps(len(trial.log.steps()) + 20)
    result.update(ranks=[], blamed=blamed(trial), steps_lost=0)
    if trial.ranks() != before or AGAIN in trial.log.since_mark():
        raise TimeoutError("the ranks were started again")
    result["seconds"] = max(trial.log.step_times())


def slow(trial, chance, result):
    """A rank runs a fifth of the time until it is blamed."""
    begin = await_moment(trial, chance)
    # Rank 0 alone waits for the simulated time of a step.
    (pid,) = choose(trial, chance, result, first=1)
    done = threading.Event()

    def hold():
        # On a busy machine the rank may stand still for 0.5 s, so the
        # supervisor takes it for stuck and kills it.
        with contextlib.suppress(ProcessLookupError):
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
    others = (r"(?:ranks_even|_slow) .*island four: "
              rf"(?!rank {result['blamed'][0]} )")
    _, well = await_that(
        lambda: re.search(others, trial.events.since_mark()), "a fast rank")
    result["seconds"] = well - begin


def lose_spare(trial, chance, result):
    """A host is killed, and the host of its spare as that takes over."""
    begin = await_moment(trial, chance)
    result["ranks"] = [RANKS - 1]
    lost = trial.member
    trial.kill(f"host{lost}")
    _, found = await_that(
        lambda: re.search(r"is dead|" + VERDICT, trial.log.since_mark()),
        "a verdict")
    result["found_seconds"] = found - begin
    spare = await_member(trial)
    # The ranks connect in the first tenth of a second.
    time.sleep(chance.uniform(0, chance.choice((0.02, 0.3))))
    trial.kill(f"host{spare}")
    await_member(trial)
    await_repair(trial, result, begin)
    for host in (lost, spare):
        trial.start_host(host, 1)


def await_member(trial):
    """Waits for a new crew, and returns which lone host takes part."""
    crew = r"trains on 4 of 4 processes: 0, 1, 2, (\d)\n"
    found, _ = await_that(
        lambda: re.search(crew, trial.log.since_mark()), "a crew of four")
    trial.log.mark += found.end()
    trial.member = int(found.group(1))
    return trial.member


def corrupt(trial, chance, result):
    """A rank computes wrong numbers from some step on."""
    begin = await_moment(trial, chance)
    choose(trial, chance, result, first=1)
    (rank,) = result["ranks"]
    trial.compute_wrong(rank, True)
    result["found_seconds"] = await_blame(trial, result) - begin
    trial.last = max(trial.log.steps())
    crew, _ = await_that(
        lambda: re.search("trains on 2 of 4 processes: (.*)",
                          trial.log.since_mark()), "a smaller crew")
    if str(rank) in crew.group(1):
        raise TimeoutError(f"rank {rank} still takes part")
    trial.await_text("trains on 2 of 4")
    steps, repaired = trial.await_steps(1)
    result["seconds"] = repaired - begin
    result["steps_lost"] = lost_steps(trial.last, steps)
    # It stays away.
    trial.await_steps(len(steps) + 12)
    result["blamed"] = blamed(trial)
    trial.compute_wrong(rank, False)
    start_anew(trial)


def corrupt_leader(trial, chance, result):
    """Rank 0 computes wrong numbers, and the island cannot do without it."""
    begin = await_moment(trial, chance)
    result["ranks"] = [0]
    trial.compute_wrong(0, True)
    result["found_seconds"] = await_blame(trial, result) - begin
    trial.compute_wrong(0, False)
    await_end(trial, result, begin)


def corrupt_one_of_two(trial, chance, result):
    """One of two ranks computes wrong numbers; it is unknown which one."""
    begin = await_moment(trial, chance)
    process = chance.randrange(2)
    result.update(ranks=[], blamed=[])
    trial.compute_wrong(process, True)
    left = r"island_failed .*island four.*in an audit some ranks had"
    _, found = await_that(
        lambda: re.search(left, trial.events.since_mark()), "an event")
    result["found_seconds"] = found - begin
    trial.compute_wrong(process, False)
    await_end(trial, result, begin)


def start_anew(trial):
    """Ends the island in order, and starts it again."""
    trial.processes["four"].terminate()
    trial.processes["four"].wait(30)
    trial.start_four_again()
    trial.await_steps(1)
