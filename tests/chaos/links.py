# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of the hosts of an island, and of the links between them.

  unshare --net links.py --programs DIR [--count N] [--json FILE] ...

This needs root, outside of most containers.

A coordinator and two islands run as processes. `four` has four hosts, each a
network namespace with a supervisor and a rank, and a link of its own between
every two of them. It may go on with two ranks. After some steps a link has a
fault, COUNT of each kind, on links that chance decides:

  slow    it has a twentieth of its rate until it is blamed
  crawl   it has a hundredth of its rate until the island has trained without
          one end of it for a while (--leave_out_slow)
  crawl_in_plan
          the same, and the coordinator gets SIGKILL after the island has
          decided to go without one end, but before it does
  lossy   it loses 10 % of all packets until it is blamed
  drizzle
          it loses 2 % of all packets for 20 s; TCP bears that, and it need not
          be found
  short   it loses all packets for 5 s
  cut     it loses all packets until the island has trained without it for a
          while

Then the same with two ranks on each host, of which the first two may lead
(hosts.py):

  lose_host    a host that does not lead is cut off, and its processes get
               SIGKILL; it comes back after a while
  lose_leader  the same for the host that leads

The report has, for each kind of fault:

  count           faults
  found           faults that an event of the coordinator has named
  found_seconds   from the fault until then: median and longest
  blamed_rightly  how many events have named this link
  blamed_end      how many have named a rank at one of its ends instead
  blamed_wrongly  how many have named another link or rank
  repaired        how many times the island has trained again without a human,
                  or was found to be well after a slow link was fast again
  seconds         from the fault until a step is done, or from the time when a
                  slow link is fast until the coordinator knows: median and
                  longest
  steps_lost      steps that the island had made since the checkpoint that it
                  took up: median and most
  starts          starts of the ranks while a link was cut: median and most
  slow_step       seconds of a step while a link crawls or loses 2 %: median and
                  longest
  step            seconds of a step without one end of it, or before it lost
                  packets: median and longest
  whole_seconds   from the end of a cut, or of crawling, or the start of a host,
                  until all ranks train: median and longest

Exit codes: 0 every link and host was blamed, unless its fault was short or of
2 %, nothing else was, and the island trained on, faster if a link crawled; 1
otherwise.
"""

import random
import re
import statistics
import sys
import time

import hosts
import islands
from islands import (AGAIN, Log, await_that, in_time, lost_steps, make_parser,
                     note_blame, running, spread, write_report)
from network import HOSTS, HUB, RATE, Network, address

KINDS = ("slow", "crawl", "crawl_in_plan", "lossy", "drizzle", "short", "cut")
HOST_KINDS = ("lose_host", "lose_leader")
# These faults need not be found.
BORNE = ("short", "drizzle")
SHORT_SECONDS = 5
DRIZZLE_SECONDS = 20
EVENT = r"(?:rank|link)_(?:dead|stuck|slow|corrupt) .*island four: (.*)"


class Trial(islands.Trial):
    """The coordinator and the islands."""

    host = HUB

    def __init__(self, options, directory, memory):
        self.network = Network()
        super().__init__(options, directory, memory)

    def start_four(self):
        for host in range(HOSTS):
            self.start_island(
                "four", "--supervise", 1, "--island_size", HOSTS,
                "--min_island_size", 2, "--island_rank", host,
                "--island_leader", address(0) + ":7100", "--rank_host",
                address(host), "--insecure_ranks", "--on_rank_fault", "act",
                "--hang_floor", self.options.hang_floor, "--shrink_after", 1,
                "--leave_out_slow", 0.1,
                "--checkpoint_dir", self.directory / f"checkpoint{host}",
                "--recent_checkpoint_dir", self.memory / f"checkpoint{host}",
                within=self.network.within(host), process=f"host{host}")
        self.log = Log(self.directory / "host0.log")

    def end(self):
        super().end()
        self.network.end()


def await_blame(trial, result):
    """Waits until the coordinator blames a link or rank; returns the time."""
    text, now = await_that(
        lambda: re.search(EVENT, trial.events.since_mark()), "an event")
    result["blamed"] = text.group(1)
    return now


def judge(trial, link, result):
    """Records whom the events since the mark blame."""
    for text in re.findall(EVENT, trial.events.since_mark()):
        if "processes, without" in text:
            continue
        ends = [int(rank) for rank in
                re.findall(r"(?:ranks?|and) (\d+)", text.split(":")[0])]
        kind = ("rightly" if set(ends[:2]) == set(link) else
                "end" if ends[0] in link and len(ends) == 1 else "wrongly")
        note_blame(result, kind, text)


def bear(trial, kind, link, result, begin):
    """Makes a link slow until it is blamed, and then restores it."""
    if kind == "slow":
        trial.network.shape(link, RATE / 20)
    else:
        trial.network.lose(link, 0.1)
    try:
        result["found_seconds"] = await_blame(trial, result) - begin
    finally:
        trial.network.heal(link)
    begin = time.monotonic()
    _, well = await_that(
        lambda: "ranks_even" in trial.events.since_mark(), "a fast link")
    result["seconds"] = well - begin


def drizzle(trial, link, result, begin):
    """Makes a link lose a few packets for a while."""
    result["step"] = statistics.mean(trial.log.step_times())
    trial.log.set_mark()
    trial.network.lose(link, 0.02)
    time.sleep(DRIZZLE_SECONDS)
    result["slow_step"] = statistics.mean(trial.log.step_times())
    if re.search(EVENT, trial.events.since_mark()):
        result["found_seconds"] = await_blame(trial, result) - begin
    trial.network.heal(link)
    _, repaired = trial.await_steps(len(trial.log.steps()) + 1)
    result["seconds"] = repaired - begin - DRIZZLE_SECONDS


def cut(trial, kind, link, result, begin):
    """Cuts a link, for good or for a while."""
    last = max(trial.log.steps())
    trial.log.set_mark()
    trial.network.lose(link, 1)
    if kind == "short":
        time.sleep(SHORT_SECONDS)
        trial.network.heal(link)
        trial.log.set_mark()
        _, repaired = trial.await_steps(2)
        result["seconds"] = repaired - begin
        result["starts"] = trial.log.since_mark().count(AGAIN)
        return
    result["found_seconds"] = await_blame(trial, result) - begin
    await_that(lambda: AGAIN in trial.log.since_mark(), "a restart")
    trial.log.mark += trial.log.since_mark().index(AGAIN)
    steps, repaired = trial.await_steps(1)
    result["seconds"] = repaired - begin
    result["steps_lost"] = lost_steps(last, steps)
    time.sleep(trial.options.cut_seconds)
    result["starts"] = trial.log.since_mark().count(AGAIN)
    trial.network.heal(link)
    await_whole(trial, result)


def crawl(trial, kind, link, result, begin):
    """Makes a link slow until the island does without one end of it."""
    trial.network.shape(link, RATE / 100)
    found = await_blame(trial, result)
    result["found_seconds"] = found - begin
    slow_steps = len(trial.log.steps())
    if kind == "crawl_in_plan":
        await_that(lambda: "so it is left out" in trial.log.since_mark(),
                   "a plan")
        trial.kill("coordinator")
        trial.restart_coordinator()
    _, left = await_that(
        lambda: re.search("island restarts without process",
                          trial.log.since_mark()), "a smaller crew")
    result["slow_step"] = (left - found) / max(
        1, len(trial.log.steps()) - slow_steps)
    last = max(trial.log.steps())
    trial.log.mark += trial.log.since_mark().index("island restarts without")
    steps, repaired = trial.await_steps(1)
    result["seconds"] = repaired - begin
    result["steps_lost"] = lost_steps(last, steps)
    more, later = trial.await_steps(len(steps) + 10)
    result["step"] = (later - repaired) / (len(more) - len(steps))
    time.sleep(trial.options.cut_seconds)
    trial.network.heal(link)
    await_whole(trial, result)


def await_whole(trial, result):
    """Waits until all four ranks train."""
    trial.log.set_mark()
    healed = time.monotonic()
    _, whole = await_that(
        lambda: re.search(r"trains on 4 of 4 (?s:.*)step \d+/",
                          trial.log.since_mark()), "all four ranks")
    result["whole_seconds"] = whole - healed


def one_fault(trial, chance, result):
    """Writes the outcome of a fault to `result`. Raises TimeoutError."""
    kind = result["kind"]
    trial.log.set_mark()
    trial.await_steps(chance.randint(25, 45))
    time.sleep(chance.uniform(0, trial.options.step_seconds))
    link = tuple(sorted(chance.sample(range(HOSTS), 2)))
    result["link"] = link
    trial.events.set_mark()
    begin = time.monotonic()
    try:
        if kind in ("slow", "lossy"):
            bear(trial, kind, link, result, begin)
        elif kind in ("crawl", "crawl_in_plan"):
            crawl(trial, kind, link, result, begin)
        elif kind == "drizzle":
            drizzle(trial, link, result, begin)
        else:
            cut(trial, kind, link, result, begin)
    finally:
        trial.network.heal(link)
        judge(trial, link, result)


def summary(results):
    """Returns the report on the faults of one kind."""
    return {
        "count": len(results),
        "found": sum("found_seconds" in r for r in results),
        **spread(results, "found_seconds", "found_seconds_longest"),
        **{key: sum(r.get(key, 0) for r in results)
           for key in ("blamed_rightly", "blamed_end", "blamed_wrongly")},
        "repaired": sum("seconds" in r for r in results),
        **spread(results, "seconds", "seconds_longest"),
        **spread(results, "steps_lost", "steps_lost_most"),
        **spread(results, "starts", "starts_most"),
        **spread(results, "slow_step", "slow_step_longest"),
        **spread(results, "step", "step_longest"),
        **spread(results, "whole_seconds", "whole_seconds_longest"),
    }


def is_good(kind, report):
    if kind.startswith("crawl") and not (
            report["step_longest"] < report["slow_step"] and
            report["steps_lost_most"] == 0):
        return False
    return (report["repaired"] == report["count"] and
            report["blamed_wrongly"] == report["blamed_end"] == 0 and
            (kind in BORNE or report["found"] == report["count"]))


def play(make_trial, fault, kinds, options, chance):
    """Makes COUNT faults of each kind, or until one times out."""
    kinds = [kind for kind in kinds for _ in range(options.count)]
    chance.shuffle(kinds)
    results = []
    if not kinds:
        return results
    with running(make_trial, options) as trial:
        trial.await_steps(10)
        for kind in kinds:
            results.append({"kind": kind})
            if not in_time(fault, trial, chance, results[-1]):
                break
    return results


def run(options):
    """Returns the report, and whether all is as it should be."""
    chance = random.Random(options.seed)
    chosen = options.kinds.split(",")
    results = []
    for make_trial, fault, kinds in (
            (Trial, one_fault, KINDS),
            (hosts.HostTrial, hosts.lose_host, HOST_KINDS)):
        results += play(make_trial, fault,
                        [kind for kind in kinds if kind in chosen], options,
                        chance)
    report = {kind: summary([r for r in results if r["kind"] == kind])
              for kind in (*KINDS, *HOST_KINDS) if kind in chosen}
    good = len(results) == len(chosen) * options.count and all(
        is_good(kind, report[kind]) for kind in report)
    return report, good


def main():
    parser = make_parser(__doc__, 10, KINDS + HOST_KINDS)
    parser.add_argument("--cut_seconds", type=float, default=5,
                        help="how long the island trains without a link that "
                             "is cut or crawls, or a lost host (%(default)s)")
    options = parser.parse_args()
    report, good = run(options)
    write_report(report, options.json)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
