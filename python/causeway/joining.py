# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Joins a run."""

import os
import re
import socket
from typing import Any, Optional

from ._library import Path
from .errors import InvalidArgument
from .island import Island
from .ranks import Ranks


def _default_name() -> str:
    host = socket.gethostname().split(".")[0].lower()
    return re.sub("[^a-z0-9-]", "-", host)[:64] or "island"


def join(coordinator: Optional[str] = None,
         *,
         island: Optional[str] = None,
         tls: Optional[Path] = None,
         join_token: Optional[str] = None,
         tls_ca: Optional[Path] = None,
         tls_cert: Optional[Path] = None,
         tls_key: Optional[Path] = None,
         checkpoint_dir: Optional[Path] = None,
         checkpoint_steps: int = 100,
         resume: Optional[Path] = None,
         initial_parameters: Optional[Path] = None,
         overlap_steps: Optional[int] = None,
         uplink_bits: Optional[float] = None,
         uplink_mbit_s: float = 0,
         downlink_mbit_s: float = 0,
         bulk_connections: int = 1,
         region: Optional[str] = None,
         anchors_on_device: bool = False,
         description: Optional[str] = None,
         timeout: Optional[float] = 600,
         step_timeout: Optional[float] = None,
         leave_timeout: float = 30,
         process_group: Optional[Any] = None,
         rank_host: Optional[str] = None,
         rank_timeout: float = 300,
         encrypt_ranks: bool = False,
         handle_sigterm: bool = True,
         verbose: bool = False) -> Island:
    """Joins a run.

    With torch.distributed initialized, the processes of `process_group` are one
    island, and all of them call this.

    Args:
      coordinator: host:port; or, separated by commas, the coordinator's
        address and those of its followers. Default: $CAUSEWAY_COORDINATOR.
      island: the island's name, which is its identity through restarts.
        Default: $CAUSEWAY_ISLAND, the certificate's name, or this host's name.
      tls: the folder with the island's certificate, made with `join_token` if
        it is not there. Default: $CAUSEWAY_TLS. Without it and tls_cert the
        connection is plain text.
      join_token: from `causeway token create`. Default: $CAUSEWAY_JOIN_TOKEN.
      tls_ca, tls_cert, tls_key: PEM files, instead of `tls`.
      checkpoint_dir: a folder in which the library keeps the island's part of
        the run, every `checkpoint_steps` steps; the successor of a killed
        process continues from it. Default: $CAUSEWAY_CHECKPOINT_DIR.
      resume: a folder that Island.save has written.
      initial_parameters: a copy of the checkpoint that the run began with,
        which is then not downloaded.
      overlap_steps: the steps after which an update is applied, for a link that
        needs another number than the run's.
      uplink_bits: the bits per value of contributions, which need ECQ as the
        run's uplink_format; default: the run's, or what the coordinator plans.
      uplink_mbit_s, downlink_mbit_s: rates, in 1e6 bits per second, to which
        transfers are paced; 0: no pacing.
      bulk_connections: the connections for bulk data.
      region: the region of this island. Updates and parameters come from a
        follower there, if one keeps up. Default: $CAUSEWAY_REGION.
      anchors_on_device: whether the library's copy of a model on a GPU is on
        the GPU, too: 4 bytes a parameter, and 8 more in fragments whose updates
        are in flight. Training then waits less for an update.
      description: the text that `causeway islands` shows for this island.
      timeout: the most seconds to wait for the coordinator; None waits for
        ever.
      step_timeout: the most seconds for which a step waits for the run: for
        its values and for other islands before the start, for a late update, or
        while the run is paused. None waits for ever, and Ctrl-C ends it.
      leave_timeout: the most seconds in which a leaving island hands in its
        training.
      process_group: the processes of this island. Default: all of them.
      rank_host: the name by which other ranks reach this host.
      rank_timeout: the seconds after which a rank that does not answer has
        failed.
      encrypt_ranks: whether ranks encrypt their messages for the run. This does
        not affect torch.distributed's traffic.
      handle_sigterm: whether the first SIGTERM asks to leave, if it has no
        other handler.
      verbose: whether the library logs to stderr.

    Raises:
      Timeout: the island could not join in time. The message has the cause:
        the coordinator's name is unknown, nothing listens there, the run is
        full, or a killed process still has this island's lease.
      NameTaken: a live process already is the island of this name.
      Unauthenticated, PermissionDenied: the certificate or the token is not
        accepted, or only one of the two sides uses TLS.
      Unavailable: the coordinator does not answer, and so cannot take the
        token.
      RunFinished: the run is finished. It ends a script that does not catch
        it, with exit status 0.
      RunMismatch: the state is of another run.
    """
    # The library takes 0 for its default.
    for name, value in (("bulk_connections", bulk_connections),
                        ("checkpoint_steps", checkpoint_steps),
                        ("leave_timeout", leave_timeout),
                        ("rank_timeout", rank_timeout)):
        if not value > 0:
            raise InvalidArgument(f"{name} is {value}; allowed: more than 0")
    environment = os.environ.get
    coordinator = coordinator or environment("CAUSEWAY_COORDINATOR")
    if not coordinator:
        raise InvalidArgument(
            "no coordinator: pass host:port, or set CAUSEWAY_COORDINATOR")
    tls = tls or environment("CAUSEWAY_TLS")
    island = island or environment("CAUSEWAY_ISLAND")
    if not island and not (tls or tls_cert):
        island = _default_name()
    options = {
        "coordinator": coordinator,
        "island": island,
        "description": description or f"PyTorch on {socket.gethostname()}",
        "tls": tls,
        "join_token": join_token or environment("CAUSEWAY_JOIN_TOKEN"),
        "tls_ca": tls_ca,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "uplink_mbit_s": uplink_mbit_s,
        "downlink_mbit_s": downlink_mbit_s,
        "bulk_connections": bulk_connections,
        "region": region or environment("CAUSEWAY_REGION"),
        "anchors_on_device": int(anchors_on_device),
        "overlap_steps": overlap_steps,
        "uplink_bits": uplink_bits,
        "initial_parameters": initial_parameters,
        "checkpoint_directory":
            checkpoint_dir or environment("CAUSEWAY_CHECKPOINT_DIR"),
        "checkpoint_steps": checkpoint_steps,
        "resume_directory": resume,
        "leave_timeout_seconds": leave_timeout,
        "verbose": int(verbose),
        "encrypt_ranks": int(encrypt_ranks),
        "rank_timeout_seconds": rank_timeout,
    }
    return Island(options, Ranks(process_group, rank_host), timeout,
                  step_timeout, handle_sigterm)
