# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""An island that trains LeastSquares, as a program for tests.

Its argument is a JSON object with the fields of Settings. It writes a JSON
object a line to stdout: {"event": "attached" | "step" | "end", ...},
for steps the first ones and then every tenth.
"""

import datetime
import itertools
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import torch

import causeway
from causeway.testing.least_squares import LeastSquares, largest_error


@dataclass
class Settings:
    """The test's settings."""

    # Arguments of causeway.join.
    join: Dict[str, Any]
    # A file that this process waits for before it joins, if it is not empty.
    gate: str = ""
    part: int = 0
    dtype: str = "float32"
    tied: bool = False
    # Names that contain this do not require gradients.
    frozen: Optional[str] = None
    step_seconds: float = 0
    # The fault of this process in place of the step `fault_step`, or of
    # attach() if that is 0: "exit" without a word, "hang", or "raise", once the
    # file `fault_file` exists if it is given.
    fault: str = ""
    fault_step: int = 0
    fault_file: str = ""
    # The process group: its number of processes, this one's number, a file.
    # Without a file the environment has both numbers and the address.
    ranks: int = 1
    rank: int = 0
    group_file: str = ""
    # The rows of the head that this rank has, if not all of them.
    rows: Optional[List[int]] = None
    # The processes of a DataLoader, from which each step takes a batch.
    workers: int = 0
    # A file with the name of a device that does not work, if it exists.
    broken: str = ""
    # If true, the kernel kills a rank with this device.
    broken_kills: bool = False
    # The steps between two audits; 0 for none. From the step `wrong_from` on
    # this rank's gradients in audits are wrong, if it is not 0, and if the rank
    # has this device or none is given.
    audit: int = 0
    wrong_from: int = 0
    wrong_device: str = ""


def say(event: str, **values) -> None:
    # This is one write, since several ranks may share the pipe.
    line = json.dumps({"event": event, **values}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())


def make_model(settings: Settings) -> torch.nn.Module:
    torch.manual_seed(settings.part)
    model = LeastSquares(settings.tied).to(getattr(torch, settings.dtype))
    for name, parameter in model.named_parameters():
        if settings.frozen and settings.frozen in name:
            parameter.requires_grad_(False)
    if settings.rows is not None:
        model.keep_rows(*settings.rows)
    return model


def fail(settings: Settings, step: int) -> None:
    if not settings.fault or step != settings.fault_step:
        return
    say("fault", step=step, process=os.getpid())
    while settings.fault_file and not os.path.exists(settings.fault_file):
        time.sleep(0.01)
    if settings.fault == "exit":
        os._exit(3)
    if settings.fault == "raise":
        raise ValueError("no such file")
    while True:
        signal.pause()


def has_device(name: str) -> bool:
    devices = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    return name == devices[int(os.environ["LOCAL_RANK"])]


def check_device(settings: Settings) -> None:
    """Raises an exception if this rank's device is the broken one."""
    if not os.path.exists(settings.broken):
        return
    with open(settings.broken, encoding="utf-8") as file:
        if has_device(file.read()):
            if settings.broken_kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the device does not work")


def train(settings: Settings, island: causeway.Island) -> None:
    model = make_model(settings)
    replica = model
    shards = {
        name: (first, model.get_parameter(name).reshape(-1))
        for name, first in model.first.items()
    }
    # Ranks with shards of their own make the same steps on what they share.
    if settings.ranks > 1 and not shards:
        replica = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    fail(settings, 0)
    try:
        island.attach(replica, optimizer, shards=shards)
    except causeway.Timeout:
        say("waits")
        island.wait()
    if island.should_stop:
        return say("left")
    say("attached", step=island.step, error=largest_error(model))
    batches = itertools.repeat(None)
    if settings.workers:
        batches = iter(torch.utils.data.DataLoader(
            range(10**9), num_workers=settings.workers))
    while not island.should_stop:
        next(batches)
        step = island.step
        fail(settings, step)
        if settings.audit:
            wrong = 0 < settings.wrong_from <= step and (
                not settings.wrong_device or has_device(settings.wrong_device))
            island.audit(lambda audited, part: audited(part) * (1 + wrong),
                         settings.part, every=settings.audit)
        optimizer.zero_grad()
        loss = replica(settings.part)
        loss.backward()
        island.report(tokens=32 // settings.ranks, loss=loss)
        time.sleep(settings.step_seconds)
        optimizer.step()
        scheduler.step()
        if step <= 3 or step % 10 == 0:
            say("step", step=step, loss=float(loss.detach()))
    with island.merged_weights():
        merged_error = largest_error(model)
    say("end", step=island.step, error=largest_error(model),
        merged_error=merged_error)


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    check_device(settings)
    if settings.ranks > 1:
        if settings.group_file:
            method = f"file://{settings.group_file}"
        else:
            method = "env://"
            settings.rank = int(os.environ["RANK"])
            settings.ranks = int(os.environ["WORLD_SIZE"])
        torch.distributed.init_process_group(
            "gloo", init_method=method,
            rank=settings.rank, world_size=settings.ranks,
            # A rank may be killed before the others have found it.
            timeout=datetime.timedelta(seconds=60))
    if settings.gate:
        say("ready")
        while not os.path.exists(settings.gate):
            time.sleep(0.01)
    with causeway.join(**settings.join) as island:
        say("joined", rank=settings.rank, ranks=settings.ranks,
            process=os.getpid())
        train(settings, island)


if __name__ == "__main__":
    main()
