# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of an island on this host and keeps them alive.

    python3 -m causeway.run [ARGUMENTS OF TORCHRUN] SCRIPT [ARGUMENTS]

It is torchrun, which starts all ranks again when one dies, and more: it also
finds ranks that are stuck, by what they stamp, and kills them, so that torchrun
starts them again (worker/collective/rank_stamps.h); goes on without a rank that
does not come back, and tries it again later; and no rank outlives it.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from . import _library
from .left_out import Absent, LeftOut, hide_device, show_device

# Nobody should start the island again before someone has looked at it.
GAVE_UP = 3

_LOOK_SECONDS = 0.1
# If other ranks run on for this time, they have not failed with the first.
_ALONE_SECONDS = 1
# The longest time that ranks take to leave the run.
_LEAVE_SECONDS = 30


def add_arguments(parser: Any) -> None:
    """Adds to torchrun's arguments."""
    group = parser.add_argument_group("Causeway")
    group.add_argument(
        "--on-rank-fault", "--on_rank_fault", default="detect",
        choices=("detect", "decide", "act"),
        help="what to do about a rank that is stuck: detect reports it, decide "
        "also what act would do, and act kills it, and all are started again")
    group.add_argument(
        "--hang-silence", "--hang_silence", type=float, default=10,
        help="seconds after which a process that does not run is stuck")
    group.add_argument(
        "--hang-floor", "--hang_floor", type=float, default=300,
        help="least seconds that a rank may take for a step, after the first "
        "5 rounds; also at least 5 times what any has taken before. What the "
        "script does now and then, such as an evaluation, must be faster")
    group.add_argument(
        "--hang-ceiling", "--hang_ceiling", type=float, default=1800,
        help="most seconds that a rank may take for a step, also in the first "
        "rounds")
    group.add_argument(
        "--min-island-size", "--min_island_size", type=int, default=0,
        help="fewest ranks of the island, on all hosts: it goes on without a "
        "rank that fails first each time until the restarts are used up. "
        "0: all are needed")
    group.add_argument(
        "--grow-after", "--grow_after", type=float, default=300,
        help="seconds after which a rank that was left out is taken in again, "
        "if its GPU computes; twice as long each time that it fails again. "
        "0: never")
    parser.set_defaults(max_restarts=3, monitor_interval=0.2)


def _say(text: str) -> None:
    print("causeway.run:", text, file=sys.stderr, flush=True)


class Watch:
    """Looks for ranks that are stuck, on a thread of its own.

    last_step: the last step of the run that a rank has begun.
    guessed: the process that was killed though another may be to blame.
    killed: the process that was killed because its rank was stuck.
    """

    last_step = 0
    guessed = 0
    killed = 0

    def __init__(self, arguments: Any) -> None:
        """Takes the arguments, and changes the environment of ranks that are
        started from now on. Raises Error."""
        self._arguments = arguments
        # Held by the thread that uses the handle.
        self._lock = threading.Lock()
        self._handle = ctypes.c_void_p()
        variable = ctypes.c_char_p()
        _library.check(_library.library().causeway_watch_open(
            ctypes.byref(self._handle), ctypes.byref(variable)))
        name, _, value = (variable.value or b"").decode().partition("=")
        os.environ[name] = value
        # Ranks that are started again would otherwise read the addresses of the
        # earlier ones.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
        threading.Thread(target=self._look, daemon=True).start()

    def report_failure(self, rank: int, text: str,
                       is_stuck: bool = False) -> None:
        """Has rank 0 report that a rank of the island is stuck, or has ended
        with all others of this host."""
        with self._lock:
            _library.check(_library.library().causeway_watch_failed(
                self._handle, rank, is_stuck, text.encode()))

    def report_return(self, rank: int, text: str) -> None:
        """Has rank 0 report that a rank that was left out is back."""
        with self._lock:
            _library.check(_library.library().causeway_watch_returned(
                self._handle, rank, text.encode()))

    def _look(self) -> None:
        stuck = _library.StuckRank()
        reported = 0
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                _library.check(_library.library().causeway_watch_look(
                    self._handle, self._arguments.hang_silence,
                    self._arguments.hang_floor, self._arguments.hang_ceiling,
                    ctypes.byref(stuck)))
            self.last_step = stuck.last_step
            if stuck.process not in (0, reported):
                self._report(stuck)
            reported = stuck.process

    def _report(self, stuck: _library.StuckRank) -> None:
        what = (stuck.text or b"").decode()
        if stuck.is_sure:
            self.report_failure(stuck.rank, what, is_stuck=True)
        acts = self._arguments.on_rank_fault == "act"
        if acts:
            what += "; killing it, so that all ranks are started again"
        elif self._arguments.on_rank_fault == "decide":
            what += "; with --on-rank-fault=act it would be killed"
        _say(what)
        # Ranks of a script wait for one another unseen. If it is not known
        # which one hangs, any will do: all are started again.
        if acts:
            if stuck.is_sure:
                self.killed = stuck.process
            else:
                self.guessed = stuck.process
            os.kill(stuck.process, signal.SIGKILL)


class Restarts:
    """Decides whether torchrun's agent starts the ranks again, and how many.

    Only starts without progress count: those that come to no later step than
    the starts before them.
    """

    def __init__(self, watch: Any, most: int, least_ranks: int, absent: Absent,
                 pause: Callable[[float], None] = time.sleep) -> None:
        """
        Args:
          watch: a Watch.
          most: the starts without progress after which no other follows.
          least_ranks: the fewest ranks of the island; 0 is all.
          absent: keeps the ranks that are left out.
          pause: waits for some seconds.
        """
        self._watch = watch
        self._most = most
        self._least_ranks = least_ranks
        self._absent = absent
        self._pause = pause
        # The last rank of this host, if it was taken in again and has not
        # failed since, and the first step that was seen with it.
        self._returned: Optional[LeftOut] = None
        self._first_step: Optional[int] = None
        self._furthest = 0
        # By failure without progress: the local rank that has failed first;
        # None if that is not known.
        self._first: List[Optional[int]] = []

    def first_to_fail(self, agent: Any) -> Optional[int]:
        """Returns the local rank that was killed, or has failed while all
        others run on, if it is one."""
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
            # So may one of this host that takes longer to end.
            self._pause(_ALONE_SECONDS)
            first = list(failed())
        if len(first) != 1 or processes[first[0]].pid == self._watch.guessed:
            return None
        return first[0]

    def after_failure(self, agent: Any, first: Optional[int]) -> None:
        """Sets how often the agent starts its ranks again, and how many."""
        if self._most == 0:
            return
        returned = self._take_returned()
        last = len(agent._worker_group.workers) - 1
        if returned is not None and first in (None, last):
            # All was well without it.
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

    def _take_returned(self) -> Optional[LeftOut]:
        """Returns the rank that was taken in again, unless the island has made
        a step with it. From then on it is like any other."""
        returned, self._returned = self._returned, None
        has_worked = (self._first_step is not None
                      and self._watch.last_step > self._first_step)
        return None if has_worked else returned

    def _goes_on_without(self, agent: Any, first: Optional[int]) -> bool:
        """Counts a failure; returns whether the island goes on without the
        rank that was the first to fail."""
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
        workers = agent._worker_group.workers
        whole = workers[rank].world_size
        device = hide_device(rank, len(workers))
        how_long = (self._absent.add(device) if returned is None else
                    self._absent.put_back(returned))
        self._report(agent, rank,
                     f", {when}; the island goes on without it, with "
                     f"{whole - 1} of {whole} ranks, {how_long}", is_first)
        agent._worker_group.spec.local_world_size = len(workers) - 1
        self._allow_all(agent)

    def _report(self, agent: Any, rank: int, what_follows: str = "",
                is_first: bool = True) -> None:
        """Has rank 0 report a rank because of which the island has failed."""
        process = agent._pcontext.subprocess_handlers[rank].proc
        if process.pid == self._watch.killed and not what_follows:
            return
        worker, code = agent._worker_group.workers[rank], process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        how = (f"ended first, with {how}" if is_first else
               "may be why all ranks failed")
        text = f"rank {worker.global_rank} {how}{what_follows}"
        _say(text)
        self._watch.report_failure(worker.global_rank, text)

    def grow(self, agent: Any) -> None:
        """Starts all ranks again, with one that was left out, if it is time
        for that and they train. They leave the run in order."""
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
        _say(text)
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
        # waits for them. For one whose ranks have ended before, in order, the
        # island would have finished.
        ending = threading.Timer(5 * group.spec.monitor_interval,
                                 self._end_ranks, [agent])
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

    @staticmethod
    def _end_ranks(agent: Any) -> None:
        """Lets the ranks of this host leave the run."""
        processes = [handler.proc for handler in
                     agent._pcontext.subprocess_handlers.values()]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + _LEAVE_SECONDS
        while (time.monotonic() < end
               and any(process.poll() is None for process in processes)):
            time.sleep(_LOOK_SECONDS)

    def _allow_all(self, agent: Any) -> None:
        """Lets the agent start its ranks again, and count from then on."""
        self._first = []
        self._allow(agent, self._most + 1)

    @staticmethod
    def _allow(agent: Any, starts: int) -> None:
        # Ranks of earlier starts must not be met, so starts have numbers that
        # were not there before: what torchrun allows, less what is left.
        more = starts - agent._remaining_restarts
        agent._worker_group.spec.max_restarts += more
        agent._remaining_restarts = starts

    def watch_over(self, kind: Any) -> None:
        """Makes the agents of this class ask here."""
        look = kind._monitor_workers

        def monitor(agent: Any, group: Any) -> Any:
            first = self.first_to_fail(agent)
            result = look(agent, group)
            if result.state.name == "FAILED":
                self.after_failure(agent, first)
            elif result.state.name == "HEALTHY":
                self.grow(agent)
            return result

        kind._monitor_workers = monitor


def main(arguments: List[str]) -> int:
    """Returns the exit code."""
    # It has no types.
    run: Any = importlib.import_module("torch.distributed.run")
    errors: Any = importlib.import_module(
        "torch.distributed.elastic.multiprocessing.errors")
    agents: Any = importlib.import_module(
        "torch.distributed.elastic.agent.server.local_elastic_agent")
    parser = run.get_args_parser()
    parser.prog = "python3 -m causeway.run"
    add_arguments(parser)
    parsed = parser.parse_args(arguments)
    # It must live as long as the ranks.
    watch = Watch(parsed)
    Restarts(watch, parsed.max_restarts, parsed.min_island_size,
             Absent(parsed.grow_after, _say)).watch_over(
                 agents.LocalElasticAgent)
    processes: Any = importlib.import_module(
        "torch.distributed.elastic.multiprocessing.api")
    try:
        run.run(parsed)
    except processes.SignalException as error:
        # The ranks have had it, too, and have ended.
        number = int(error.sigval)
        _say(f"ended by signal {number}")
        return 128 + number
    except errors.ChildFailedError as error:
        print(error, file=sys.stderr)
        return GAVE_UP if parsed.max_restarts > 0 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
