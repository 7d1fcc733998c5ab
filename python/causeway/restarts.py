# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Decides what to do when ranks that torchrun started fail (causeway.run)."""

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .left_out import Absent, LeftOut, hide_device, show_device

# Ranks that still run after this time have not failed with the first one.
_ALONE_SECONDS = 1
# The longest time that ranks take to leave the run.
_LEAVE_SECONDS = 30
_LOOK_SECONDS = 0.1


def say(text: str) -> None:
    """Tells people."""
    print("causeway.run:", text, file=sys.stderr, flush=True)


def end_ranks(context: Any, number: int = signal.SIGTERM,
              seconds: float = _LEAVE_SECONDS) -> None:
    """Lets the ranks of this host leave the run, within some seconds, and then
    ends what they have started.

    The signal goes to the ranks alone at first, because they cannot train until
    they leave without the processes of their DataLoaders.
    """
    running = [handler.proc for handler in context.subprocess_handlers.values()
               if handler.proc.poll() is None]
    for process in running:
        process.send_signal(number)
    end = time.monotonic() + seconds
    while (time.monotonic() < end
           and any(process.poll() is None for process in running)):
        time.sleep(_LOOK_SECONDS)
    for process in running:
        has_ended = process.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number if has_ended else signal.SIGKILL)


def end_ranks_at_close(kind: Any) -> None:
    """Makes torchrun's contexts of this class end ranks by end_ranks."""
    close = kind._close

    def end_and_close(context: Any, death_sig: signal.Signals,
                      timeout: int = _LEAVE_SECONDS) -> None:
        end_ranks(context, death_sig, timeout)
        close(context, death_sig, timeout)

    kind._close = end_and_close


class Restarts:
    """Decides whether torchrun's agent starts the ranks again, and how many.

    Only starts without progress count: they complete no later step than the
    starts before them.

    gave_up: whether the island must not be started again, because it computes
      wrong numbers.
    """

    gave_up = False

    def __init__(self, watch: Any, most: int, least_ranks: int, absent: Absent,
                 pause: Callable[[float], None] = time.sleep) -> None:
        """
        Args:
          watch: a Watch.
          most: the most restarts without progress.
          least_ranks: the fewest ranks of the island; 0 is all.
          absent: keeps the ranks that are left out.
          pause: waits for some seconds.
        """
        self._watch = watch
        self._most = most
        self._least_ranks = least_ranks
        self._absent = absent
        self._pause = pause
        # The last rank of this host, if it has rejoined and not failed since,
        # and the first step that was seen with it.
        self._returned: Optional[LeftOut] = None
        self._first_step: Optional[int] = None
        self._furthest = 0
        # The number of ranks of this host, when they have started.
        self._local_ranks = 0
        # For each failure without progress, the local rank that failed first,
        # or None if unknown.
        self._first: List[Optional[int]] = []

    def first_to_fail(self, agent: Any) -> Optional[int]:
        """Returns the one local rank that was killed, or failed while all
        others run on; None if there is no single one."""
        processes = {rank: handler.proc for rank, handler in getattr(
            agent._pcontext, "subprocess_handlers", {}).items()}

        def failed() -> Dict[int, int]:
            return {rank: process.returncode
                    for rank, process in processes.items() if process.poll()}

        first = [rank for rank, code in failed().items()
                 if code == -signal.SIGKILL]
        # A rank of another host may have failed before these.
        if (not first and failed() and self._least_ranks > 0
                and agent._worker_group.group_world_size == 1):
            # One of this host may also have failed before, but end later.
            self._pause(_ALONE_SECONDS)
            first = list(failed())
        if len(first) != 1 or processes[first[0]].pid == self._watch.guessed:
            return None
        return first[0]

    def after_failure(self, agent: Any, first: Optional[int]) -> None:
        """Sets the agent's remaining restarts and its number of ranks."""
        returned = self._take_returned()
        if self._after_audit(agent) or self._most == 0:
            return
        last = len(agent._worker_group.workers) - 1
        if returned is not None and first in (None, last):
            # The island trained well without this rank.
            self._go_on_without(agent, last, "after its return", returned,
                                is_first=first == last)
            return
        goes_on = self._goes_on_without(agent, first)
        if first is None:
            self._await_other_hosts(agent)
            return
        if goes_on:
            self._go_on_without(
                agent, first, f"{len(self._first)} times without progress")
        else:
            self._report(agent, first)

    def _after_audit(self, agent: Any) -> bool:
        """Returns whether the ranks failed because of wrong numbers that a rank
        of this host computes, or may compute."""
        corrupt = self._watch.take_corrupt()
        workers = agent._worker_group.workers
        here = [rank for rank, worker in enumerate(workers)
                if not corrupt or worker.global_rank in corrupt]
        if corrupt is None or not here:
            return False
        name = f"rank {corrupt[0]}" if corrupt else "a rank"
        may_go_on = corrupt and self._most > 0 and (
            len(workers) == 1 or 0 < self._least_ranks < workers[0].world_size)
        if may_go_on and self._watch.acts and len(workers) > 1:
            what = self._leave_out(agent, here[0], LeftOut(None, 0, 0))
        else:
            self.gave_up = True
            agent._remaining_restarts = 0
            what = "the island is not restarted"
            if may_go_on and self._watch.acts:
                what = ("this host has no other rank and ends; another host "
                        "takes its place, or the island continues without it")
                # A shutdown would end the other hosts.
                agent._worker_group.spec.rdzv_handler.shutdown = lambda: True
            elif may_go_on:
                what += ("; with --on-rank-fault=act it would continue without "
                         "that rank")
        say(f"{name} computes wrong numbers; {what}")
        return True

    def _take_returned(self) -> Optional[LeftOut]:
        """Returns the rank that has rejoined, unless the island has made a step
        with it, which makes it a rank like any other."""
        returned, self._returned = self._returned, None
        has_worked = (self._first_step is not None
                      and self._watch.last_step > self._first_step)
        return None if has_worked else returned

    def _goes_on_without(self, agent: Any, first: Optional[int]) -> bool:
        """Counts a failure; returns whether the island goes on without the rank
        that failed first."""
        if self._watch.last_step > self._furthest:
            self._furthest = self._watch.last_step
            self._allow_all(agent)
            return False
        self._first.append(first)
        workers = agent._worker_group.workers
        return (agent._remaining_restarts <= 0 and first is not None
                and len(workers) > 1 and set(self._first) == {first}
                and 0 < self._least_ranks < workers[0].world_size)

    def _await_other_hosts(self, agent: Any) -> None:
        """Allows one more start, because another host may be about to go on
        without a rank of its own."""
        if (agent._remaining_restarts == 0 and self._least_ranks > 0
                and len(self._first) == self._most + 1
                and agent._worker_group.group_world_size > 1):
            self._allow(agent, 1)

    def _go_on_without(self, agent: Any, rank: int, when: str,
                       returned: Optional[LeftOut] = None,
                       is_first: bool = True) -> None:
        """Starts the next ranks without this local one."""
        what = self._leave_out(agent, rank, returned)
        self._report(agent, rank, f", {when}; {what}", is_first)

    def _leave_out(self, agent: Any, rank: int,
                   returned: Optional[LeftOut]) -> str:
        """Starts the next ranks without this local one, which was left out
        before if `returned` is given. Returns a text on what follows."""
        workers = agent._worker_group.workers
        whole = workers[rank].world_size
        device = hide_device(rank, len(workers))
        how_long = (self._absent.add(device) if returned is None else
                    self._absent.put_back(returned))
        agent._worker_group.spec.local_world_size = len(workers) - 1
        self._allow_all(agent)
        return (f"the island continues without it, with {whole - 1} of {whole} "
                f"ranks, {how_long}")

    def _report(self, agent: Any, rank: int, what_follows: str = "",
                is_first: bool = True) -> None:
        """Has rank 0 report the rank that made the island fail."""
        process = agent._pcontext.subprocess_handlers[rank].proc
        if process.pid == self._watch.killed and not what_follows:
            return
        worker, code = agent._worker_group.workers[rank], process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        how = (f"ended first, with {how}" if is_first else
               "may be why all ranks failed")
        text = f"rank {worker.global_rank} {how}{what_follows}"
        say(text)
        self._watch.report_failure(worker.global_rank, text)

    def grow(self, agent: Any) -> None:
        """Restarts all ranks, with one that was left out, if that one is due
        and the others train. They leave the run in order."""
        if self._watch.last_step <= self._furthest:
            return
        if self._first_step is None:
            self._first_step = self._watch.last_step
        absent = self._absent.take()
        if absent is None:
            return
        group = agent._worker_group
        last = len(group.workers)
        show_device(absent.device)
        group.spec.local_world_size = last + 1
        self._allow_all(agent)
        # It is a start like any other.
        agent._remaining_restarts -= 1
        text = (f"the rank that was left out is back; the island trains with "
                f"{group.workers[0].world_size + 1} ranks")
        say(text)
        self._watch.report_return(group.workers[-1].global_rank + 1, text)
        self._start_again(agent)
        self._furthest = max(self._furthest, self._watch.last_step)
        self._returned, self._first_step = absent, None

    def _start_again(self, agent: Any) -> None:
        group = agent._worker_group
        if group.group_world_size == 1:
            agent._restart_workers(group)
            return
        # The agents of other hosts end their ranks when they see that this one
        # waits for them. An agent whose ranks ended in order before that would
        # take the island for finished.
        ending = threading.Timer(5 * group.spec.monitor_interval, end_ranks,
                                 [agent._pcontext])
        ending.start()
        meet = agent._rendezvous

        def meet_and_end(group: Any) -> None:
            meet(group)
            ending.join()
            agent._stop_workers(group)

        agent._rendezvous = meet_and_end
        try:
            agent._initialize_workers(group)
        finally:
            agent._rendezvous = meet

    def _allow_all(self, agent: Any) -> None:
        """Restores the agent's restarts, and counts failures anew."""
        self._first = []
        self._allow(agent, self._most + 1)

    @staticmethod
    def _allow(agent: Any, starts: int) -> None:
        # Ranks must not meet ranks of earlier starts, so each start needs a new
        # number, which is what torchrun allows less what is left.
        more = starts - agent._remaining_restarts
        agent._worker_group.spec.max_restarts += more
        agent._remaining_restarts = starts

    def begin_again(self, arguments: Any) -> None:
        """Prepares torchrun's arguments for another agent on this host, which
        leaves out the same ranks."""
        self._first = []
        if self._local_ranks:
            arguments.nproc_per_node = str(self._local_ranks)

    def watch_over(self, kind: Any) -> None:
        """Makes the agents of this class ask this object."""
        look = kind._monitor_workers

        def monitor(agent: Any, group: Any) -> Any:
            first = self.first_to_fail(agent)
            result = look(agent, group)
            if result.state.name == "FAILED":
                self.after_failure(agent, first)
            elif result.state.name == "HEALTHY":
                self.grow(agent)
            self._local_ranks = group.spec.local_world_size
            return result

        kind._monitor_workers = monitor
