#!/usr/bin/python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the figures of tests/peers/compare.sh from the workers' logs.

    figures.py FOLDER [JSON]

Prints the figures by peer and by setting (number of workers and link), and adds
them to the file's. Figures of failed runs are missing.

  tokens_per_second     of all workers together
  share_of_unconnected  that over the same of unconnected workers
  bytes_per_step        what a worker's link carries both ways for a step, with
                        all headers, after the first step
  seconds_to_first_merge
                        from the start of the peer's first program until the
                        first worker has made the first round, and its model is
                        merged; with gradients that are merged, the first step
  loss_equal_tokens     validation loss after all steps
  loss_equal_time       the same at the time when unconnected workers have made
                        all steps
  seconds_lost_worker   for how long the other workers do nothing new after one
                        was killed; null where they never end
  seconds_lost_server   the same of all workers
  steps_lost_worker     the steps that workers make again, or never, after it;
                        null where the others never end
  steps_lost_server     the same
"""

import json
import os
import re
import statistics
import sys


class Worker:
    """The contents of a worker's log."""

    def __init__(self, path):
        self.steps = []
        self.figures = None
        # The end of the first step after which hivemind, which averages beside
        # training, says that it has averaged.
        self.averaged = None
        has_averaged = False
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                match = re.match(r"step (\d+) ([0-9.]+)$", line)
                if match:
                    self.steps.append((int(match[1]), float(match[2])))
                    if has_averaged and self.averaged is None:
                        self.averaged = float(match[2])
                elif re.search(r"Averaged parameters with (?!1 )\d+ peers",
                               line):
                    has_averaged = True
                elif line.startswith('{"steps"'):
                    self.figures = json.loads(line)


def loss_at(curve, seconds):
    """Returns the loss at that time, between the ends of two rounds."""
    before = None
    for _, end, loss in curve:
        if end >= seconds:
            if before is None:
                return None
            share = (seconds - before[0]) / (end - before[0])
            return before[1] + share * (loss - before[1])
        before = (end, loss)
    return before[1]


def speed_figures(workers, alone):
    """Returns the figures of a run without a kill."""
    done = [worker.figures for worker in workers]
    apart = [worker.figures for worker in alone]
    if not done or None in done or None in apart:
        return {}
    rate = sum(figures["tokens_per_second"] for figures in done)
    rate_apart = sum(figures["tokens_per_second"] for figures in apart)
    curve = done[0]["curve"]
    return {
        "tokens_per_second": rate,
        "share_of_unconnected": rate / rate_apart,
        "bytes_per_step": statistics.mean(
            figures["bytes_per_step"] for figures in done),
        "loss_equal_tokens": curve[-1][2],
        "loss_equal_time": loss_at(curve, apart[0]["curve"][-1][1]),
    }


def seconds_to_first_merge(peer, worker, began):
    first_end = worker.steps[0][1]
    if peer == "hivemind":
        return worker.averaged and worker.averaged - began
    if peer == "powersgd":
        return first_end - began
    return first_end + worker.figures["curve"][0][1] - began


def seconds_lost(workers, killed):
    """Returns for how long workers did nothing new after the kill.

    A pause between two steps counts as far as it exceeds the longest one before
    the kill; a step that is made again counts as a whole.
    """
    lost = []
    for worker in workers:
        if worker.figures is None:
            return None
        seconds = longest = newest = 0
        for (_, begin), (step, end) in zip(worker.steps, worker.steps[1:]):
            if end <= killed:
                longest = max(longest, end - begin)
            elif step <= newest:
                seconds += end - begin
            else:
                seconds += max(0, end - begin - longest)
            newest = max(newest, step)
        lost.append(seconds)
    return statistics.mean(lost)


def steps_lost(workers, again):
    """Returns how many steps were made again, or never.

    `again` is the last worker after it was killed and started again. Its steps
    do not count if it had not ended by the end of the run.
    """
    made = [[step for step, _ in worker.steps] for worker in workers]
    if again is not None:
        workers = workers[:-1]
        made[-1] += [step for step, _ in again.steps if again.figures]
    if any(worker.figures is None for worker in workers):
        return None
    all_steps = max(map(max, made))
    return sum(all_steps + len(steps) - 2 * len(set(steps)) for steps in made)


def time_in(folder, name):
    """Returns the time that compare.sh has noted in a file; None without it."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return None
    with open(path, encoding="ascii") as file:
        return float(file.read())


def collect(folder):
    """Returns figures by peer and setting."""
    runs, again = {}, {}
    for name in sorted(os.listdir(folder)):
        match = re.match(
            r"(.+)\.(\d+)\.([0-9.:]+)\.(\w+)\.\d+(-again)?\.log$", name)
        if not match:
            continue
        *run, is_again = match.groups()
        worker = Worker(os.path.join(folder, name))
        if is_again:
            again[tuple(run)] = worker
        else:
            runs.setdefault(tuple(run), []).append(worker)
    report = {}
    for (peer, count, link, kind), workers in runs.items():
        rate, round_trip = link.split(":")
        setting = f"{count} workers, {rate} Mbit/s, {round_trip} ms"
        figures = report.setdefault(peer, {}).setdefault(setting, {})
        if kind == "none":
            alone = runs["alone", count, link, "none"]
            figures.update(speed_figures(workers, alone))
            began = time_in(folder, f"{peer}.{count}.{link}.{kind}.began")
            if figures and began is not None and peer != "alone":
                figures["seconds_to_first_merge"] = seconds_to_first_merge(
                    peer, workers[0], began)
            continue
        killed = time_in(folder, f"{peer}.{count}.{link}.{kind}.killed")
        if killed is not None:
            others = workers[:-1] if kind == "worker" else workers
            figures[f"seconds_lost_{kind}"] = seconds_lost(others, killed)
            figures[f"steps_lost_{kind}"] = steps_lost(
                workers, again.get((peer, count, link, kind)))
    return report


def main():
    report = {}
    path = sys.argv[2] if len(sys.argv) > 2 else None
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    for peer, settings in collect(sys.argv[1]).items():
        for setting, figures in settings.items():
            report.setdefault(peer, {}).setdefault(setting, {}).update(figures)
            print(f"{peer}; {setting}: {json.dumps(figures)}")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
