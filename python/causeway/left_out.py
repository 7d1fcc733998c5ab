# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks the ranks of a host that an island trains without, and when each one
rejoins (causeway.run)."""

import contextlib
import importlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

# The wait for a rank that keeps failing doubles up to this many times the first
# wait.
MOST_WAITS = 16

# A probe that takes longer has failed: importing PyTorch takes seconds.
_PROBE_SECONDS = 120
# A killed probe that has not ended after this time sleeps in the kernel,
# perhaps for good.
_END_SECONDS = 5

# Computes on the GPU that the rank had, or else on the CPU.
_PROBE = """
import torch
on_gpu = {} and (torch.version.cuda or torch.version.hip)
values = torch.ones(256, 256, device="cuda" if on_gpu else "cpu")
assert float((values @ values).sum()) == 256 ** 3, "it computes wrong numbers"
"""


@dataclass
class LeftOut:
    """A rank that the island trains without.

    device: its entry of CUDA_VISIBLE_DEVICES, if each rank has one.
    wait: the seconds to the next try.
    due: the time of that try.
    """

    device: Optional[str]
    wait: float
    due: float


def hide_device(rank: int, ranks: int) -> Optional[str]:
    """Hides a local rank's GPU from ranks that are started from now on, if each
    rank has one, and returns it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        cuda = importlib.import_module("torch.cuda")
        visible = ",".join(map(str, range(cuda.device_count())))
    devices = visible.split(",")
    if len(devices) != ranks:
        return None
    device = devices.pop(rank)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return device


def show_device(device: Optional[str]) -> None:
    """Gives a GPU to the last of the ranks that are started from now on."""
    if device is not None:
        devices = os.environ["CUDA_VISIBLE_DEVICES"]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(
            filter(None, (devices, device)))


def start_probe(device: Optional[str]) -> "subprocess.Popen[str]":
    """Starts a process that ends with exit code 0 if the GPU computes."""
    environment = dict(os.environ)
    if device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = device
    return subprocess.Popen(
        [sys.executable, "-c", _PROBE.format(device is not None)],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True)


class Absent:
    """All ranks of this host that are left out."""

    def __init__(self, first_wait: float, say: Callable[[str], None],
                 probe: Callable[[Optional[str]], Any] = start_probe,
                 now: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
          first_wait: the seconds after which a rank rejoins; 0 lets none
            rejoin.
          say: tells people.
          probe: starts a process that tells whether a rank could run.
          now: a clock.
        """
        self._first_wait = first_wait
        self._say = say
        self._start_probe = probe
        self._now = now
        self._ranks: List[LeftOut] = []
        # The rank that is probed, its process, and the deadline.
        self._probed: Optional[Tuple[LeftOut, Any, float]] = None

    def add(self, device: Optional[str]) -> str:
        """Leaves out a rank. Returns a text that says for how long."""
        return self.put_back(LeftOut(device, self._first_wait / 2, 0))

    def put_back(self, rank: LeftOut) -> str:
        """Doubles the wait of a rank that has failed again; see add."""
        rank.wait = min(2 * rank.wait, MOST_WAITS * self._first_wait)
        rank.due = self._now() + rank.wait
        if not rank.wait:
            return "for as long as causeway.run lives"
        self._ranks.append(rank)
        return f"for {rank.wait:g} s at least"

    def take(self) -> Optional[LeftOut]:
        """Returns a rank that should rejoin now, if there is one.

        Call it now and then; it waits for a few seconds at most.
        """
        if self._probed is None:
            for rank in self._ranks:
                if rank.due <= self._now():
                    self._ranks.remove(rank)
                    self._probed = (rank, self._start_probe(rank.device),
                                    self._now() + _PROBE_SECONDS)
                    break
            return None
        rank, process, late = self._probed
        if process.poll() is None and self._now() < late:
            return None
        process.kill()
        output = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, output = process.communicate(timeout=_END_SECONDS)
        self._probed = None
        if process.returncode == 0:
            return rank
        last = (output or "").strip().rpartition("\n")[2]
        self._say(f"the rank that is left out could not run: its GPU or "
                  f"processor does not compute ({last or 'no answer'}); it "
                  f"stays left out {self.put_back(rank)}")
        return None
