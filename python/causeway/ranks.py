# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of an island, as torch.distributed knows them."""

import os
import socket
import sys
from typing import Any, Callable, List, Optional, TypeVar

from .errors import Error, InvalidArgument, error_of

Result = TypeVar("Result")

# See Ranks.first.
WAITING: Any = object()


class Ranks:
    """A process group, or one process alone."""

    def __init__(self, group: Optional[Any] = None,
                 host: Optional[str] = None):
        """
        Args:
          group: a process group; None is the default one if there is one.
          host: the name by which other ranks reach this host.

        Raises InvalidArgument if several processes were started, but no group
        exists yet.
        """
        self._group = group
        self._host = host
        self._distributed: Any = None
        self.rank, self.size = 0, 1
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if (distributed is not None and distributed.is_available()
                and distributed.is_initialized()):
            self._distributed = distributed
            self.rank = distributed.get_rank(group)
            self.size = distributed.get_world_size(group)
            if self.rank < 0:
                raise InvalidArgument("this process is not in process_group")
        elif group is not None or int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise InvalidArgument(
                "this process is one of several; call "
                "torch.distributed.init_process_group() before causeway.join()")

    @property
    def _root(self) -> int:
        """The number of rank 0 among all processes of torch.distributed."""
        if self._group is None:
            return 0
        c10d = self._distributed.distributed_c10d
        find = getattr(c10d, "get_global_rank", None)
        return int((find or c10d._get_global_rank)(self._group, 0))

    def broadcast(self, tensor: Any) -> None:
        """Gives all ranks the values of rank 0's tensor."""
        if self.size > 1:
            self._distributed.broadcast(tensor, self._root, self._group)

    def barrier(self) -> None:
        """Waits until all ranks have called it."""
        if self.size > 1:
            self._distributed.barrier(self._group)

    def first(self, act: Callable[[Optional[Any]], Result],
              tell: Callable[[Result], Any] = lambda _: ()) -> Result:
        """Calls `act` on rank 0 with None, and then on the other ranks with
        `tell(rank 0's result)`. Returns the result.

        An `act` that takes long on rank 0 may return WAITING from time to time,
        and is called again. The other ranks then hear that they must wait, and
        the time limit of their collective begins anew.

        Raises what `act` raises; an Error or OSError on rank 0 is raised on all
        ranks, as an Error on the others.
        """
        if self.rank == 0:
            try:
                result = act(None)
                while result is WAITING:
                    self.from_first(None)
                    result = act(None)
            except (Error, OSError) as error:
                code = error.code if isinstance(error, Error) else Error.code
                self.from_first((code, str(error), None))
                raise
            self.from_first((0, "", tell(result)))
            return result
        answer = self.from_first(None)
        while answer is None:
            answer = self.from_first(None)
        code, message, told = answer
        if code:
            raise error_of(code, message)
        return act(told)

    def host(self) -> Optional[str]:
        """Returns the name by which other ranks reach this one; None if it is
        the host's name. All ranks call it."""
        if self.size == 1:
            return self._host
        # Other ranks may have no name.
        hosts = set(self.gather(socket.gethostname()))
        if self._host is not None:
            return self._host
        return "127.0.0.1" if len(hosts) == 1 else None

    def gather(self, value: Any) -> List[Any]:
        """Returns the values of all ranks, two or more. All ranks call it."""
        values = [None] * self.size
        self._distributed.all_gather_object(values, value, self._group)
        return values

    def from_first(self, value: Any) -> Any:
        """Returns rank 0's value. All ranks call it."""
        if self.size == 1:
            return value
        values = [value]
        self._distributed.broadcast_object_list(values, self._root,
                                                self._group)
        return values[0]
