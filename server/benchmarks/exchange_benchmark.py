#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a blocking exchange takes, and what it consists of.

  bazel run //server/benchmarks:exchange_benchmark -- --json FILE

A coordinator and two islands run as processes on loopback: a model of 10.8
million parameters, exchanged after every second inner step, without overlap. An
exchange lasts from when the later island begins its first snapshot until both
have applied the last update. The processes record its stages (--trace); a
stage's time is the sum of its spans in an exchange, on the island where it
takes longer. Stages overlap: an encoding is sent while it is made, and several
--fragments are under way at once.

PyTorch's Gloo all-reduces a vector of the same size between two processes in
the same run. It needs python3-torch. State is written below $TMPDIR.

With --link, each process has a network namespace of its own, and emulated long
links join them (tests/wan/sites.cc). That needs root.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

CONFIG = """
name: "exchange"
model {{ layers: 12 hidden_size: 256 intermediate_size: 768 heads: 4
        sequence_length: 64 vocab_size: 1150 }}
data {{ tokenizer: PRETOKENIZED shards: 2 }}
training {{ total_steps: {steps} batch_size: 1 }}
synchronization {{
  inner_steps_per_round: 2 fragments: {fragments} overlap_steps: 0
  uplink_format: {format} downlink_format: {format} {more} }}
membership {{ min_islands: 2 max_islands: 2 }}
"""
# More settings of a run in this format, as in the quickstart.
MORE = {"ECQ": "ecq_bits: 1.8 error_feedback: 1"}
# The vectors of the model above.
VALUES = 10_818_816
ISLAND_STAGES = ("snapshot", "encode", "turn", "offer", "upload", "verdict",
                 "await update", "download", "decode", "digest", "apply")
COORDINATOR_STAGES = ("verify", "prepare", "outer step", "store", "commit",
                      "notify")
# Rounds in which buffers are made and pages are touched for the first time.
WARM_UP = 4

GLOO = """
import datetime, sys, time, torch, torch.distributed as dist
rank, path, values, count = int(sys.argv[1]), *sys.argv[2:]
torch.set_num_threads(1)
dist.init_process_group("gloo", f"file://{path}", rank=rank, world_size=2)
vector = torch.ones(int(values))
for _ in range(int(count)):
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(vector)
    print(time.perf_counter() - begin)
"""



class Site:
    """Where a process runs: on this machine, or in a network namespace."""

    def __init__(self, namespace: str = "", address: str = "127.0.0.1"):
        self.prefix = ["nsenter", f"--net={namespace}"] if namespace else []
        self.address = address
        self.interface = "wan0" if namespace else "lo"


@contextlib.contextmanager
def sites(link: str):
    """Yields the sites of two islands and of the coordinator: one machine three
    times, or namespaces joined by links of "Mbit/s:milliseconds of a round
    trip"."""
    if not link:
        yield [Site()] * 3
        return
    rate, round_trip = link.split(":")
    with subprocess.Popen(
            [programs() / "tests/wan/causeway-wan-sites", "--sites", "3",
             "--rate_mbit_s", rate, "--round_trip_ms", round_trip],
            stdout=subprocess.PIPE, text=True) as network:
        try:
            made = [Site(network.stdout.readline().strip(), f"10.77.{i}.2")
                    for i in range(3)]
            for i, site in enumerate(made):
                subprocess.run(
                    site.prefix + ["ip", "route", "add", "default", "via",
                                   f"10.77.{i}.1"], check=True)
            yield made
        finally:
            network.terminate()


def programs() -> pathlib.Path:
    """Returns the folder of the built programs."""
    return pathlib.Path(sys.argv[0] + ".runfiles") / "causeway"


def write_tokens(path: pathlib.Path) -> None:
    numbers = random.Random(1)
    ids = [numbers.randrange(1150) for _ in range(200_000)]
    path.write_bytes(struct.pack(f"<{len(ids)}H", *ids))


def run_processes(work: pathlib.Path, form: str, rounds: int, fragments: int,
                  places: list) -> None:
    """Makes a whole run; every process writes its trace to NAME.json."""
    (work / "config").write_text(
        CONFIG.format(steps=2 * rounds, format=form, more=MORE.get(form, ""),
                      fragments=fragments))
    port = work / "port"
    host = places[2].address
    commands = {"coordinator": places[2].prefix + [
        programs() / "server/causeway-coordinator", "--config", work / "config",
        "--state_dir", work / "state", "--listen", f"{host}:0", "--insecure",
        "--port_file", port, "--exit_when_finished"]}
    for name, site in zip(("a", "b"), places):
        commands[name] = site.prefix + [
            programs() / "worker/causeway-worker", "--island", name,
            "--data", work.parent / "tokens", "--threads", "1",
            "--log_seconds", "0"]
    running = {}
    try:
        for name, command in commands.items():
            if name != "coordinator":
                while not port.exists():
                    if running["coordinator"].poll() is not None:
                        sys.exit((work / "coordinator.log").read_text())
                    time.sleep(0.02)
                command += ["--coordinator",
                            f"{host}:{port.read_text().strip()}"]
            with open(work / f"{name}.log", "w") as log:
                running[name] = subprocess.Popen(
                    command + ["--trace", work / f"{name}.json"],
                    stdout=log, stderr=subprocess.STDOUT)
        for name, process in running.items():
            if process.wait() != 0:
                sys.exit((work / f"{name}.log").read_text())
    finally:
        for process in running.values():
            process.kill()


def read_spans(path: pathlib.Path) -> list:
    """Returns a process's spans as (stage, begin, end), in seconds."""
    events = json.loads(path.read_text().rstrip(",\n") + "]")
    return sorted(((e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6)
                   for e in events if e["ph"] == "X"), key=lambda s: s[1])


def measure(work: pathlib.Path, form: str, rounds: int, fragments: int,
            places: list) -> dict:
    """Returns the times of exchanges and of their stages, by round."""
    run_processes(work, form, rounds, fragments, places)
    islands = [read_spans(work / f"{name}.json") for name in ("a", "b")]
    coordinator = read_spans(work / "coordinator.json")

    def times(stage: str, which: int) -> list:
        return [[span[which] for span in spans if span[0] == stage]
                for spans in islands]

    begins = [max(pair) for pair in zip(*times("snapshot", 1))]
    ends = [max(pair) for pair in zip(*times("apply", 2))]
    windows = list(zip(begins[::fragments], ends[fragments - 1::fragments]))
    windows = windows[WARM_UP:]

    def sums(spans: list, stage: str) -> list:
        """Sums spans by exchange; a span belongs to the one it ends in."""
        return [sum(last - max(first, begin) for name, first, last in spans
                    if name == stage and begin <= last <= end)
                for begin, end in windows]

    stages = {stage: [max(pair) for pair in zip(*(
        sums(spans, stage) for spans in islands))] for stage in ISLAND_STAGES}
    stages.update({stage: sums(coordinator, stage)
                   for stage in COORDINATOR_STAGES})
    return {"exchange": [end - begin for begin, end in windows], **stages}


def measure_gloo(work: pathlib.Path, count: int, places: list) -> list:
    processes = [subprocess.Popen(
        site.prefix + ["/usr/bin/python3", "-c", GLOO, str(rank),
                       str(work / "gloo"), str(VALUES), str(count + WARM_UP)],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "GLOO_SOCKET_IFNAME": site.interface})
        for rank, site in enumerate(places[:2])]
    times = [[float(line) for line in process.communicate()[0].split()]
             for process in processes]
    return [max(pair) for pair in zip(*times)][WARM_UP:]


def describe(times: list) -> str:
    ordered = sorted(times)
    low, high = ordered[len(times) // 10], ordered[len(times) * 9 // 10]
    return (f"{1000 * statistics.median(times):8.1f} ms  "
            f"({1000 * low:.1f} to {1000 * high:.1f})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", help="write the figures to this file, too")
    parser.add_argument("--rounds", type=int, default=40,
                        help="exchanges of each measurement")
    parser.add_argument("--link", default="",
                        help="Mbit/s:milliseconds of a round trip between any "
                        "two processes; without it they use loopback")
    parser.add_argument("--fragments", type=int, default=1,
                        help="1 to 13; the coordinator merges one while the "
                        "next is on its way")
    parser.add_argument("--formats", default="INT4,FP32",
                        help="of contributions and updates, one run for each")
    options = parser.parse_args()
    figures, medians = {}, {}
    with tempfile.TemporaryDirectory(
            prefix="causeway-exchange") as folder, sites(
                options.link) as places:
        work = pathlib.Path(folder)
        write_tokens(work / "tokens")
        gloo = measure_gloo(work, options.rounds, places)
        for form in options.formats.split(","):
            (work / form).mkdir()
            medians[form] = measure(work / form, form,
                                    options.rounds + WARM_UP, options.fragments,
                                    places)
    for form, stages in medians.items():
        print(f"{form.lower()}, milliseconds, median (10th to 90th percentile)")
        for stage, times in stages.items():
            print(f"  {stage:<13}{describe(times)}")
        figures[f"exchange_{form.lower()}_seconds"] = statistics.median(
            stages["exchange"])
        figures[f"stages_{form.lower()}"] = {
            stage: statistics.median(times)
            for stage, times in stages.items() if stage != "exchange"}
    figures["gloo_seconds"] = statistics.median(gloo)
    print(f"gloo all-reduce{describe(gloo)}")
    for form in medians:
        name = f"exchange_{form.lower()}_seconds"
        print(f"{form.lower()} / gloo: "
              f"{figures[name] / figures['gloo_seconds']:.1f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
