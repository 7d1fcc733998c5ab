# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of an island on this host and keeps them alive.

    python3 -m causeway.run [ARGUMENTS OF TORCHRUN] SCRIPT [ARGUMENTS]

This is torchrun, which restarts all ranks when one dies, and more: it also
finds stuck ranks by their stamps (worker/collective/rank_stamps.h) and kills
them, so that torchrun restarts them; goes on without a rank that does not come
back, and tries it again later; and lets no rank outlive it.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import threading
import time
from typing import Any, List, Optional

from . import _library
from .left_out import Absent
from .restarts import Restarts, end_ranks_at_close, say
from .succession import Succession

# The exit code if somebody should look at the island before it starts again.
GAVE_UP = 3

_LOOK_SECONDS = 0.1


def add_arguments(parser: Any) -> None:
    """Adds to torchrun's arguments."""
    group = parser.add_argument_group("Causeway")
    group.add_argument(
        "--on-rank-fault", "--on_rank_fault", default="detect",
        choices=("detect", "decide", "act"),
        help="what to do about a rank that is stuck: detect reports it; decide "
        "also reports what act would do; act kills it, and all are restarted. "
        "With act, the island also continues without a rank that computes "
        "wrong numbers, if --min-island-size allows it")
    group.add_argument(
        "--hang-silence", "--hang_silence", type=float, default=10,
        help="seconds after which a process that does not run is taken for "
        "stuck")
    group.add_argument(
        "--hang-floor", "--hang_floor", type=float, default=300,
        help="the fewest seconds in a step after which a rank is taken for "
        "stuck, after the first 5 rounds, if the step also takes 5 times "
        "longer than any before. What the script does now and then, such as an "
        "evaluation, must be faster")
    group.add_argument(
        "--hang-ceiling", "--hang_ceiling", type=float, default=1800,
        help="seconds in a step after which a rank is taken for stuck in any "
        "case, also in the first 5 rounds")
    group.add_argument(
        "--min-island-size", "--min_island_size", type=int, default=0,
        help="the fewest ranks, on all hosts, with which the island trains: it "
        "continues without a rank that fails first each time until the "
        "restarts are used up. 0: all are needed")
    group.add_argument(
        "--grow-after", "--grow_after", type=float, default=300,
        help="seconds after which a rank that was left out is taken back, if "
        "its GPU computes; doubled each time that it fails again. 0: never")
    parser.set_defaults(max_restarts=3, monitor_interval=0.2)


class Watch:
    """Finds stuck ranks, on a thread of its own.

    last_step: the last step of the run that a rank has completed.
    guessed: the process that was killed though another may be to blame.
    killed: the process that was killed because its rank was stuck.
    acts: whether it acts on faults, and does not only report them.
    """

    last_step = 0
    guessed = 0
    killed = 0

    def __init__(self, arguments: Any) -> None:
        """Takes the arguments, and changes the environment of ranks that are
        started from now on. Raises Error."""
        self._arguments = arguments
        self.acts = arguments.on_rank_fault == "act"
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

    def take_corrupt(self) -> Optional[List[int]]:
        """Returns, once for an audit that found wrong numbers, the rank that
        computes them, or an empty list if it is unknown; otherwise None."""
        rank, count = ctypes.c_int32(), ctypes.c_int32()
        with self._lock:
            _library.check(_library.library().causeway_watch_take_corrupt(
                self._handle, ctypes.byref(rank), ctypes.byref(count)))
        if not count.value:
            return None
        return [rank.value] if count.value == 1 else []

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
        if self.acts:
            what += "; killing it, so that all ranks are restarted"
        elif self._arguments.on_rank_fault == "decide":
            what += "; with --on-rank-fault=act it would be killed"
        say(what)
        # A script's ranks wait for one another unseen. If it is unknown which
        # one hangs, any will do: all are restarted.
        if self.acts:
            if stuck.is_sure:
                self.killed = stuck.process
            else:
                self.guessed = stuck.process
            # torchrun may have ended it meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(stuck.process, signal.SIGKILL)


def avoid_static_store(run: Any, parser: Any, arguments: Any) -> None:
    """Changes arguments of torchrun whose ranks would meet at a store that
    outlives them: those that start again read the addresses of the dead there,
    and fail or hang."""
    may_restart = arguments.max_restarts > 0 or arguments.min_island_size > 0
    if (arguments.standalone or arguments.rdzv_backend != "static"
            or not may_restart):
        return
    _, most_nodes = run.parse_min_max_nnodes(arguments.nnodes)
    if most_nodes > 1:
        parser.error("ranks of several nodes that are started again need "
                     "--rdzv-backend=c10d and --rdzv-endpoint=HOST:PORT in "
                     "place of --master-addr and --master-port")
    if arguments.master_port is not None:
        say("the ranks of one node meet at a free port, not at --master-port")
    arguments.rdzv_backend, arguments.rdzv_endpoint = "c10d", "localhost:0"
    # The host's name, which is the default, may not be known to it.
    arguments.local_addr = arguments.local_addr or "127.0.0.1"


def run_agents(run: Any, arguments: Any, restarts: Restarts,
               succession: Optional[Succession]) -> None:
    """Runs torchrun's agent, and a new one each time that the ranks lose the
    host at which they meet, if another host may take its place or has done so.
    Raises what torchrun does."""
    distributed: Any = importlib.import_module("torch.distributed")
    errors: Any = importlib.import_module(
        "torch.distributed.elastic.multiprocessing.errors")
    rendezvous: Any = importlib.import_module(
        "torch.distributed.elastic.rendezvous")
    while True:
        if succession is not None:
            succession.choose()
        try:
            run.run(arguments)
            return
        except rendezvous.RendezvousClosedError:
            raise
        except (rendezvous.RendezvousError, distributed.DistError) as error:
            if succession is None:
                raise
            say(f"lost the host that leads: {error}")
        except errors.ChildFailedError:
            # The coordinator has refused the ranks of one of the two.
            if restarts.gave_up or succession is None or (
                    not succession.has_rival()):
                raise
            say("another host leads the island")
        restarts.begin_again(arguments)


def main(arguments: List[str]) -> int:
    """Returns the exit code."""
    # It has no types.
    run: Any = importlib.import_module("torch.distributed.run")
    errors: Any = importlib.import_module(
        "torch.distributed.elastic.multiprocessing.errors")
    agents: Any = importlib.import_module(
        "torch.distributed.elastic.agent.server.local_elastic_agent")
    processes: Any = importlib.import_module(
        "torch.distributed.elastic.multiprocessing.api")
    rendezvous: Any = importlib.import_module(
        "torch.distributed.elastic.rendezvous")
    parser = run.get_args_parser()
    parser.prog = "python3 -m causeway.run"
    add_arguments(parser)
    parsed = parser.parse_args(arguments)
    succession = None
    if "," in parsed.rdzv_endpoint:
        try:
            succession = Succession(parsed, say)
        except ValueError as error:
            parser.error(str(error))
    else:
        avoid_static_store(run, parser, parsed)
    # It must live as long as the ranks.
    watch = Watch(parsed)
    restarts = Restarts(watch, parsed.max_restarts, parsed.min_island_size,
                        Absent(parsed.grow_after, say))
    restarts.watch_over(agents.LocalElasticAgent)
    end_ranks_at_close(processes.SubprocessContext)
    try:
        run_agents(run, parsed, restarts, succession)
    except processes.SignalException as error:
        # The ranks got the signal, too, and have ended.
        number = int(error.sigval)
        say(f"ended by signal {number}")
        return 128 + number
    except rendezvous.RendezvousClosedError:
        say("another host has ended the island")
        return GAVE_UP
    except errors.ChildFailedError as error:
        print(error, file=sys.stderr)
        return GAVE_UP if parsed.max_restarts > 0 or restarts.gave_up else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
