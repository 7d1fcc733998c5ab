# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses, among several hosts that may be lost, the one at which the ranks of
all hosts meet (causeway.run).

The rules are the native worker's (worker/collective/succession.h): a host
follows any leader that answers. If none does for some time, the host of the
second endpoint leads; after twice that time, the host of the third. Two hosts
that do not reach each other may both lead, but the coordinator lets only one of
them train for the island.
"""

import contextlib
import importlib
import os
import socket
import threading
import time
from typing import Any, Callable, Optional, Tuple

_LOOK_SECONDS = 0.5
# A host that answers does so in this time.
_ANSWER_SECONDS = 2
# A leader is lost if it has not answered for this long.
_LOST_SECONDS = 10


def _answers(address: Tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, _ANSWER_SECONDS).close()
        return True
    except OSError:
        return False


def _break_connections(port: int) -> None:
    """Ends this process's connections to that port, because calls of a store
    wait for ever for a host that is cut off."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                # Sockets of other families have peers without a port.
                if (connection.family in (socket.AF_INET, socket.AF_INET6)
                        and connection.getpeername()[1] == port):
                    connection.shutdown(socket.SHUT_RDWR)


class Succession:
    """The endpoints in a list of torchrun's --rdzv-endpoint."""

    def __init__(self, arguments: Any, say: Callable[[str], None]) -> None:
        """Takes torchrun's arguments. Raises ValueError."""
        if arguments.rdzv_backend != "c10d":
            raise ValueError("several hosts in --rdzv-endpoint need "
                             "--rdzv-backend=c10d")
        # It has no types.
        self._utils: Any = importlib.import_module(
            "torch.distributed.elastic.rendezvous.utils")
        self._arguments = arguments
        self._say = say
        self._configuration = arguments.rdzv_conf
        self._endpoints = arguments.rdzv_endpoint.split(",")
        self._addresses = [
            self._utils.parse_rendezvous_endpoint(endpoint, 29400)
            for endpoint in self._endpoints
        ]
        values = self._utils._parse_rendezvous_config(self._configuration)
        self._patience = float(values.get("last_call_timeout", 30))
        # The place of the host that this one follows, if any.
        self._followed: Optional[int] = None
        self._leads = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _place(self) -> Optional[int]:
        """Returns the place of this host in the list, if it has one."""
        own = self._arguments.local_addr
        for place, (host, _) in enumerate(self._addresses):
            if (host == own if own else
                    self._utils._matches_machine_hostname(host)):
                return place
        return None

    def _watch(self) -> None:
        """Watches for the loss of the host that this one follows."""
        answered = time.monotonic()
        while True:
            time.sleep(_LOOK_SECONDS)
            followed = self._followed
            if followed is None or _answers(self._addresses[followed]):
                answered = time.monotonic()
            elif time.monotonic() - answered > _LOST_SECONDS:
                self._say(f"{self._endpoints[followed]} has not answered for "
                          f"{_LOST_SECONDS} s")
                _break_connections(self._addresses[followed][1])
                answered = time.monotonic()

    def choose(self) -> None:
        """Waits until another host leads or this one must, and puts the leader
        into the arguments."""
        self._followed = None
        place = self._place()
        begin = time.monotonic()
        leader = self._other()
        while leader is None:
            if (place is not None and
                    time.monotonic() - begin >= place * self._patience):
                break
            time.sleep(_LOOK_SECONDS)
            leader = self._other()
        self._leads, self._followed = leader is None, leader
        endpoint = self._endpoints[place if leader is None else leader]
        self._say("this host leads" if self._leads else
                  f"following the host that leads, {endpoint}")
        self._arguments.rdzv_endpoint = endpoint
        self._arguments.rdzv_conf = ",".join(filter(None, (
            self._configuration, f"is_host={str(self._leads).lower()}")))

    def _other(self) -> Optional[int]:
        """Returns the place of a host that leads, other than this one."""
        return next((place for place, address in enumerate(self._addresses)
                     if place != self._place() and _answers(address)), None)

    def has_rival(self) -> bool:
        """Returns whether both this host and another one lead."""
        return self._leads and self._other() is not None
