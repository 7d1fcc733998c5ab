# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training loop as an island of a run."""

import contextlib
import ctypes
import json
import logging
import math
import os
import secrets
import socket
import tempfile
import time
import weakref
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

from . import _library
from .errors import Error, InvalidArgument, NameTaken
from .leaving import LeaveOnSigterm
from .ranks import Ranks
from .run import Run, read_run
from .sampler import Sampler
from .state import pack, unpack

_log = logging.getLogger("causeway")

# The wait between two tries to join while a process that has ended holds the
# island's name, and the time after which one says what it waits for.
_RETRY_SECONDS = 0.5
_PATIENCE_SECONDS = 10


def _close(handle: ctypes.c_void_p, process: int) -> None:
    # The library's threads are not in a child that was forked.
    if os.getpid() == process:
        _library.library().causeway_close(handle)


class Island:
    """A member of a run. Made by `causeway.join`; for use by one thread.

    with causeway.join("coordinator:7070", island="east") as island:
        island.attach(model, optimizer)
        while not island.should_stop:
            loss = ...
            island.report(tokens=batch.numel(), loss=loss)
            optimizer.step()

    Leaving the block hands in what was trained and leaves the run in order,
    also after Ctrl-C and, for an island of one process, after an exception.

    run: what the island takes part in.
    """

    run: Run

    def __init__(self, options: Dict[str, Any], ranks: Ranks,
                 timeout: Optional[float], step_timeout: Optional[float],
                 handle_sigterm: bool):
        self._options = options
        self._ranks = ranks
        self._timeout = timeout
        self._step_timeout = step_timeout
        self._step = _library.Step()
        self._report = _library.Report(loss=math.nan)
        # References that each step would else make anew.
        self._step_reference = ctypes.byref(self._step)
        self._report_reference = ctypes.byref(self._report)
        self._attachment = None
        self._hook = None
        self._uncounted = 0
        self._tokens, self._loss = 0, None
        self._ended = False
        self._stopped = False
        self._next_step = 1
        self._open()
        try:
            self._await_run()
        except BaseException:
            self.close()
            raise
        self._sigterm = (LeaveOnSigterm(self._leave_by_signal)
                         if handle_sigterm else None)

    # --- Joining. ---

    def _open(self) -> None:
        library = _library.library()

        ranks = self._ranks
        options = dict(self._options, rank=ranks.rank, ranks=ranks.size,
                       rank_host=ranks.host())

        def open_rank(leader):
            handle = ctypes.c_void_p()
            if ranks.size > 1:
                options["leader"], options["rank_secret"] = leader or (
                    f"{options['rank_host'] or socket.gethostname()}:0",
                    secrets.token_hex(32))
            _library.check(
                library.causeway_open(
                    ctypes.byref(_library.Options(**options)),
                    ctypes.byref(handle)))
            return handle

        self._handle = ranks.first(
            open_rank, lambda handle:
            (library.causeway_leader(handle).decode(), options["rank_secret"])
            if ranks.size > 1 else None)
        self._closing = weakref.finalize(self, _close, self._handle,
                                         os.getpid())

    def _await_run(self) -> None:
        run = _library.Run()
        self._ranks.first(lambda _: self._must(
            self._wait(
                lambda seconds: _library.library().causeway_await_run(
                    self._handle, seconds, ctypes.byref(run)), self._timeout,
                lambda: "joining")))
        self.run = read_run(self._handle, run)
        self._next_step = self.run.step + 1

    def attach(self, model, optimizer, *, shards=None) -> None:
        """Makes the model's parameters those of the run.

        Compares the model with the run, waits until the run has begun, and
        loads the run's values into the parameters. From then on each
        `optimizer.step()` is a step of the run: its hook sends and applies what
        is due.

        Buffers, parameters that do not require gradients, and what the run
        excludes are left alone; tied parameters count once, under the run's
        name. Call it on every rank, after `model.to()`, and before or after
        schedulers are made. DistributedDataParallel and torch.compile may wrap
        the model.

        Args:
          model: a torch.nn.Module, with parameters in float32, bfloat16 or
            float16. 16-bit ones keep a float32 reference in the library.
          optimizer: a torch.optim.Optimizer, or a list of those that together
            make a step, of which the last is stepped last.
          shards: for parameters of which each rank has a part: a mapping from
            the run's name to the index of the part's first value in the whole
            tensor, row-major, and a tensor with the part's values. The first
            dimension's shards of a DTensor are found without it.

        Raises:
          ModelMismatch: the model is not the run's. Names the tensors.
          Timeout: the run did not begin within step_timeout.
        """
        from .attachment import Attachment, StepHook, check_optimizers
        if self._attachment is not None:
            raise InvalidArgument("a model is attached already")
        optimizers = (list(optimizer) if isinstance(optimizer, (list, tuple))
                      else [optimizer])
        attachment = Attachment(model, self.run, shards)
        check_optimizers(optimizers, attachment)
        buffers = attachment.buffers()
        self._must(_library.library().causeway_attach(self._handle, buffers,
                                                      len(buffers)))
        self._attachment = attachment
        self._await_step()
        attachment.values_changed()
        self._hook = StepHook(optimizers[-1], self._after_step)

    # --- Training. ---

    @property
    def step(self) -> int:
        """The number of the step to train, on the run's schedule, from 1.

        It may skip steps; learning rates should follow it:
        `LambdaLR(optimizer, lambda _: schedule(island.step))`.
        """
        return self._next_step

    @property
    def total_steps(self) -> int:
        """The steps of the whole run."""
        return self.run.total_steps

    @property
    def should_stop(self) -> bool:
        """Whether the run is over for this island: it is complete, or the
        island has left. Further steps of the optimizer are not counted."""
        return self._stopped

    @property
    def waited_seconds(self) -> float:
        """The seconds for which training has stood still for the run."""
        return self._step.waited_seconds

    @property
    def progress(self) -> Dict[str, Any]:
        """The island's figures: IslandProgress of proto/coordinator.proto. On
        rank 0 only."""
        text = ctypes.c_char_p()
        _library.check(_library.library().causeway_progress(
            self._handle, ctypes.byref(text)))
        return json.loads(text.value)

    def report(self, tokens: int, loss=None) -> None:
        """Says what the coming step of the optimizer is made of.

        Contributions weigh by their tokens. Without a report, a step has
        `run.batch_size * run.sequence_length` tokens. Several reports before a
        step add up, as accumulated gradients do.

        Args:
          tokens: the tokens of this rank. The library takes them times the
            number of ranks.
          loss: the mean loss in nats per token, a number or a tensor, which is
            read at the step.
        """
        if tokens < 0:
            raise InvalidArgument(f"{tokens} tokens were reported")
        if loss is not None:
            if hasattr(loss, "detach"):
                loss = loss.detach()
            if self._tokens:
                share = tokens / max(1, self._tokens + tokens)
                before = loss if self._loss is None else self._loss
                loss = (1 - share) * before + share * loss
            self._loss = loss
        self._tokens += tokens

    def request_leave(self, reason: str = "the training loop asks to") -> None:
        """Asks to leave: the next step of the optimizer hands in what was
        trained, and sets should_stop. Only rank 0's request counts."""
        _library.check(_library.library().causeway_request_leave(
            self._handle, reason.encode()))

    def _leave_by_signal(self) -> None:
        # A launcher signals all ranks, and rank 0 decides.
        if self._ranks.rank == 0 and not self._ended:
            self.request_leave("SIGTERM")

    def _after_step(self) -> None:
        if self._uncounted or self._stopped or self._hook.skipped():
            return
        self._attachment.check_some()
        if not self._step.step:
            # An exception, such as Ctrl-C, had ended the wait after a step.
            self._await_step()
        tokens = self._tokens * self._ranks.size
        if not tokens:
            tokens = self.run.batch_size * self.run.sequence_length
        loss = math.nan if self._loss is None else float(self._loss)
        self._tokens, self._loss = 0, None
        self._stepped(tokens, loss)

    def _stepped(self, tokens: int, loss: float) -> None:
        report, step = self._report, self._step
        report.tokens, report.loss = tokens, loss
        report.learning_rate = self._hook.learning_rate()
        # 0 as long as the library has not said what is next, so that this is
        # known whenever an exception comes.
        step.step = 0
        code = _library.library().causeway_after_step(
            self._handle, self._report_reference, _library.SLICE_SECONDS,
            self._step_reference)
        if code == _library.DEADLINE_EXCEEDED:
            self._await_step()
        else:
            self._take(code)

    def _await_step(self) -> None:
        self._take(
            self._wait(
                lambda seconds: _library.library().causeway_next_step(
                    self._handle, seconds, self._step_reference),
                self._step_timeout,
                lambda: (self._step.activity or b"waiting").decode()))

    def _take(self, code: int) -> None:
        """Takes what the library says of the next step."""
        if code == _library.CANCELLED:
            self._stopped = True
            return
        self._must(code)
        self._stopped = bool(self._step.finished)
        if not self._stopped:
            self._next_step = self._step.step

    def _must(self, code: int) -> None:
        if code != _library.OK:
            failure = _library.failure(code)
            if code not in (_library.DEADLINE_EXCEEDED, InvalidArgument.code):
                self._ended = self._stopped = True
            raise failure

    def _wait(self, call: Callable[[float], int], timeout: Optional[float],
              activity: Callable[[], str]) -> int:
        said = time.monotonic() + _PATIENCE_SECONDS

        def say() -> None:
            nonlocal said
            if time.monotonic() > said:
                said = math.inf
                _log.warning("%s", activity())

        return _library.in_slices(call, timeout, say)

    # --- Beside training. ---

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Steps of the optimizer in this block are none of the run's."""
        self._uncounted += 1
        try:
            yield
        finally:
            self._uncounted -= 1

    @contextlib.contextmanager
    def merged_weights(self) -> Iterator[None]:
        """Has the run's merged values in the model, for evaluation.

        They are those of the newest version of each fragment that has arrived;
        the island's own values, which differ by what it has trained since, come
        back afterwards. All ranks call it together. Takes 8 bytes of host
        memory for each value.
        """
        if self._attachment is None:
            raise InvalidArgument("merged_weights() comes after attach()")
        with self.paused(), self._attachment.merged(self._handle, self._ranks):
            yield

    def sampler(self, dataset, batch_size: int, *, seed: int = 0,
                batches_per_step: int = 1) -> Sampler:
        """Returns what `DataLoader(dataset, batch_sampler=...)` takes.

        Islands and ranks get disjoint samples; a loop that is started again
        continues with the batch of the run's next step. See Sampler.

        Args:
          dataset: has a length, or is the number of samples.
          batch_size: the samples in a batch of this rank.
          seed: the order of samples.
          batches_per_step: the batches for each step of the optimizer.
        """
        size = dataset if isinstance(dataset, int) else len(dataset)
        ranks = self._ranks
        return Sampler(size, batch_size,
                       part=self.run.shard * ranks.size + ranks.rank,
                       parts=self.run.shards * ranks.size,
                       next_step=lambda: self.step,
                       total_steps=self.total_steps,
                       batches_per_step=batches_per_step, seed=seed)

    # --- State. ---

    def save(self, directory: str) -> None:
        """Writes the island's state to a folder, for `join(resume=...)`: 8
        bytes a parameter. Save the optimizer's state beside it. All ranks call
        it between steps."""
        _library.check(_library.library().causeway_save(
            self._handle, os.fspath(directory).encode()))

    def state_dict(self) -> Dict[str, Any]:
        """Returns what `save` writes, as a tensor of bytes; empty on ranks
        other than 0."""
        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            return {"island": pack(folder)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state. Call before attach(), on all ranks."""
        if self._attachment is not None:
            raise InvalidArgument("load_state_dict() comes before attach()")
        self._closing()
        with tempfile.TemporaryDirectory() as folder:
            if unpack(state["island"], folder):
                self._options["resume_directory"] = folder
            end = time.monotonic() + (self._timeout or math.inf)
            while True:
                try:
                    self._open()
                    self._await_run()
                    return
                except NameTaken:
                    # The name is free when the lease of this island ends.
                    self._closing()
                    if time.monotonic() > end:
                        raise
                    time.sleep(_RETRY_SECONDS)

    # --- The end. ---

    def leave(self) -> None:
        """Hands in what was trained, and leaves the run in order. All ranks
        call it together. Does nothing if the island has ended."""
        if self._ended or self._stopped or self._attachment is None:
            return
        if self._ranks.rank == 0:
            self.request_leave()
        self._step_timeout = (self._options["leave_timeout_seconds"] +
                              _PATIENCE_SECONDS)
        if self._step.step:
            # The step under way counts no tokens.
            self._stepped(0, math.nan)
        else:
            self._await_step()

    def close(self) -> None:
        """Ends the island at once. What was trained since its last
        contribution is lost unless `leave` came before."""
        self._ended = self._stopped = True
        if self._hook is not None:
            self._hook.remove()
        if getattr(self, "_sigterm", None) is not None:
            self._sigterm.remove()
        self._closing()

    def __enter__(self) -> "Island":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        try:
            # The ranks of an island leave together, which they cannot when one
            # of them has failed by itself.
            if error is None or isinstance(error, KeyboardInterrupt) or (
                    self._ranks.size == 1 and not isinstance(error, Error)):
                self.leave()
        except Error as failure:
            if error is None:
                raise
            _log.warning("the island did not leave in order: %s", failure)
        finally:
            self.close()
