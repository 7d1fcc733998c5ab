# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Runs functions in processes of their own that are ranks, over loopback."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# Longer than any test takes, but short enough to wait for a hanging one.
_LIMIT_SECONDS = 200
# Its processes are forked from one that has loaded PyTorch, which may take
# many seconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])


def join_group(rank: int, ranks: int, folder: str) -> None:
    """Makes this process a rank of a Gloo group that meets in `folder`."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=rank, world_size=ranks)


def run_ranks(ranks: int, function: Callable[..., Any],
              *arguments: Any) -> list[Any]:
    """Returns the results of function(rank, *arguments), by rank.

    The result of a rank that ends without one is None.

    Raises:
        AssertionError: The function has raised, or a rank hangs.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            receiver, sender = CONTEXT.Pipe(duplex=False)
            processes.append(CONTEXT.Process(
                target=_run_rank,
                args=(rank, ranks, folder, sender, function, arguments)))
            processes[-1].start()
            sender.close()
            pipes.append(receiver)
        try:
            return [_result(pipe) for pipe in pipes]
        finally:
            for process in processes:
                process.join(10)
                process.kill()


def _result(pipe: Any) -> Any:
    if not pipe.poll(_LIMIT_SECONDS):
        raise AssertionError("a rank hangs")
    try:
        succeeded, result = pickle.loads(pipe.recv_bytes())
    except EOFError:
        return None
    if not succeeded:
        raise AssertionError(f"a rank failed:\n{result}")
    return result


def _run_rank(rank: int, ranks: int, folder: str, sender: Any,
              function: Callable[..., Any],
              arguments: tuple[Any, ...]) -> None:
    try:
        join_group(rank, ranks, folder)
        message = (True, function(rank, *arguments))
    except BaseException:
        message = (False, traceback.format_exc())
    # Send tensors as bytes, because this process may end before they are read.
    sender.send_bytes(pickle.dumps(message))
