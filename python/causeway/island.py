# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training loop as an island of a run."""

import contextlib
import logging
import math
import tempfile
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping,
                    Optional, Sequence, Sized, Type, Union)

from ._library import Path
from .errors import Diverged, Error, InvalidArgument, Left, RunFinished
from .leaving import LeaveOnSigterm
from .native import PATIENCE_SECONDS, NativeIsland
from .ranks import Ranks
from .joined_run import Run
from .sampler import Sampler
from .state import pack, unpack

if TYPE_CHECKING:
    import torch

    from .attachment import Shards
    Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]

_log = logging.getLogger("causeway")

# Reports for more steps than this before a step are a mistake.
_STEPS_OF_REPORTS = 100


class Island:
    """A member of a run. Made by `causeway.join`; for use by one thread.

    with causeway.join("coordinator:7070", island="east") as island:
        island.attach(model, optimizer)
        while not island.should_stop:
            loss = ...
            island.report(tokens=batch.numel(), loss=loss)
            optimizer.step()

    Leaving the block hands in the training and leaves the run in order, also
    after Ctrl-C and, for an island of one process, after an exception.

    run: the run that the island takes part in.
    """

    run: Run

    def __init__(self, options: Dict[str, Any], ranks: Ranks,
                 timeout: Optional[float], step_timeout: Optional[float],
                 handle_sigterm: bool):
        self._options = options
        self._ranks = ranks
        self._timeout = timeout
        self._step_timeout = step_timeout
        self._attachment: Any = None
        self._trained: Any = None
        self._hooks: List[Any] = []
        self._uncounted = 0
        self._tokens: Optional[int] = None
        self._loss: Any = None
        self._losses: Any = None
        self._next_step = 1
        # The last step with more tokens than a step may have.
        self._last_excess: float = -1
        self._sigterm: Optional[LeaveOnSigterm] = None
        self._is_signalled = False
        self._open()
        if handle_sigterm:
            self._sigterm = LeaveOnSigterm(self._leave_by_signal)

    # --- Joining. ---

    def _open(self) -> None:
        self._native = NativeIsland(self._options, self._ranks, self._timeout)
        self._is_asked_to_leave = False
        # The signal may have come while the last handle was closed.
        if self._is_signalled:
            self._leave_by_signal()
        try:
            self.run = self._native.await_run(self._timeout)
        except BaseException as error:
            self._native.close()
            if isinstance(error, Left):
                _log.warning("%s", error)
                raise RunFinished(str(error)) from None
            raise
        run = self.run
        self._next_step = run.step + 1
        self._tokens_per_step = run.batch_size * run.sequence_length
        # With ACCO, whose steps vary, the coordinator allows more.
        kind = run.configuration["training"].get("inner_algorithm", "DDP")
        self._most_tokens = self._tokens_per_step if kind == "DDP" else math.inf
        plan = run.configuration["synchronization"]
        self._round_steps = int(plan["inner_steps_per_round"])
        self._send_gap = max(1, self._round_steps // plan.get("fragments", 1))

    def attach(self, model: "torch.nn.Module", optimizer: "Optimizers", *,
               shards: "Optional[Shards]" = None) -> None:
        """Makes the model's parameters those of the run.

        Compares the model with the run, waits until the run has begun, and
        loads the run's values into the parameters. From then on each
        `optimizer.step()` is a step of the run: its hook sends and applies what
        is due.

        Does not touch buffers, parameters that do not require gradients, and
        tensors that the run excludes; tied parameters count once, under the
        run's name. Call it on every rank, after `model.to()`, and before or
        after schedulers are made. DistributedDataParallel and torch.compile may
        wrap the model, and accelerate and Lightning the optimizer.

        Args:
          model: a torch.nn.Module, with parameters in float32, bfloat16 or
            float16. 16-bit ones keep a float32 reference in the library.
          optimizer: a torch.optim.Optimizer, or a list of those that together
            make a step; the last in the list must be stepped last.
          shards: for parameters of which each rank has a part: a mapping from
            the run's name to the index of the part's first value in the whole
            tensor, row-major, and a tensor with the part's values. The first
            dimension's shards of a DTensor are found without it.

        Raises:
          ModelMismatch: the model does not match the run. Names the tensors, or
            the digests if frozen tensors differ.
          Timeout: the run did not begin, or its values were not there, within
            step_timeout. The model is attached: call `wait` to continue.
          RankFailed: another rank did not attach within rank_timeout.
        """
        from .adapters import check_frozen
        from .attachment import Attachment, StepHook
        from .device import Losses
        from .trained import Trained, torch_optimizers
        self._native.check()
        if self._attachment is not None:
            raise InvalidArgument(
                "a model is attached already: call island.wait() to continue, "
                "or close() and join again for another model")
        optimizers = torch_optimizers(optimizer)
        for other in optimizers:
            StepHook.release(other)
        attachment = Attachment(model, self.run, shards)
        self._trained = Trained(optimizers, attachment, model, self.run)
        check_frozen(model, self.run,
                     {id(local.slot.parameter) for local in attachment.locals})
        self._native.attach(attachment.buffers())
        self._attachment = attachment
        self._losses = Losses(attachment.stream)
        last = len(optimizers) - 1
        self._hooks = [
            StepHook(other,
                     self._after_step if number == last else lambda: None,
                     self._before_step, lambda: self._native.stopped)
            for number, other in enumerate(optimizers)
        ]
        self.wait()

    # --- Training. ---

    @property
    def step(self) -> int:
        """The number of the step to train, on the run's schedule, from 1.

        It may skip steps; learning rates should follow it:
        `LambdaLR(optimizer, lambda _: schedule(island.step))`.
        """
        # While the next step is unknown, the last one stays.
        self._next_step = self._native.step or self._next_step
        return self._next_step

    @property
    def total_steps(self) -> int:
        """The steps of the whole run."""
        return self.run.total_steps

    @property
    def should_stop(self) -> bool:
        """Is true once the run is over for this island: it is complete, the
        island has left, or an error has ended it. Further steps of the
        optimizer are not counted, and raise the error if there was one.

        Raises:
          InvalidArgument: nothing is attached, so no step counts.
        """
        if not self._native.stopped:
            self._check_attached("should_stop")
        return self._native.stopped

    @property
    def waited_seconds(self) -> float:
        """The seconds for which training has stood still for the run."""
        return self._native.waited_seconds

    @property
    def waiting_for(self) -> Optional[str]:
        """The reason for a wait, like "waiting for fragment 0's update, due at
        step 40"; None if there is a step to train. Thread-safe."""
        return self._native.waiting_for

    @property
    def progress(self) -> Dict[str, Any]:
        """The island's figures: IslandProgress of proto/coordinator.proto. On
        rank 0 only."""
        self._native.check()
        return self._native.progress()

    def report(self, tokens: "Union[int, torch.Tensor, None]",
               loss: "Union[float, torch.Tensor, None]" = None) -> None:
        """Reports the tokens and the loss of the coming step of the optimizer.

        Contributions are weighted by their tokens. Without a report, a step has
        `run.batch_size * run.sequence_length` tokens, and never counts more.
        Several reports before a step add up, as accumulated gradients do.

        Args:
          tokens: those of this rank, a number or a tensor, which is read at
            once; the library multiplies them by the ranks. None: not reported.
          loss: the mean loss in nats per token, a number or a tensor, which is
            read at the step, or, in CUDA memory, at the first step after it is
            computed there. A loss that is not finite then raises Diverged if
            parameters are not finite either, and otherwise is logged.
        """
        self._check_attached("report()")
        before = self._tokens or 0
        # A mask's sum may be of any type.
        added = 0 if tokens is None else int(tokens)
        if added < 0:
            raise InvalidArgument(f"{added} tokens were reported")
        if loss is not None:
            if hasattr(loss, "detach"):
                values: Any = loss.detach()
                if values.numel() != 1:
                    raise InvalidArgument(f"the loss has {values.numel()} "
                                          "values: report their mean")
                loss = values
            if before and self._loss is not None:
                share = added / (before + added)
                loss = (1 - share) * self._loss + share * loss
            self._loss = loss
        limit = _STEPS_OF_REPORTS * self._tokens_per_step
        if before <= limit < before + added:
            _log.warning("the tokens of %s steps were reported, but the "
                         "attached optimizer has made no step: does the loop "
                         "use another one?", _STEPS_OF_REPORTS)
        if tokens is not None:
            self._tokens = before + added

    def request_leave(self, reason: str = "the training loop asks to") -> None:
        """Asks to leave: the next step of the optimizer hands in the training,
        and sets should_stop. Only rank 0's request counts."""
        self._native.request_leave(reason)
        self._is_asked_to_leave = True

    def _leave_by_signal(self) -> None:
        self._is_signalled = True
        # A launcher signals all ranks, and rank 0 decides.
        if self._ranks.rank == 0 and not self._native.ended:
            self.request_leave("SIGTERM")

    def wait(self) -> None:
        """Continues to wait for the next step to train, for step_timeout at
        most.

        Call it when `attach` or a step of the optimizer has raised Timeout: the
        step is made and counted, and the optimizer refuses another one until
        this has returned. Does nothing if the next step is known.

        Raises:
          Timeout: there is still no step to train; call it again.
        """
        self._check_attached("wait()")
        if not self._native.step and not self._native.stopped:
            self._attachment.follow(self._native)
            self._native.next_step(self._step_timeout)
            self._attachment.values_changed()

    def step_done(self) -> None:
        """Counts a step that the replay of a CUDA graph has made without the
        optimizer's hook. Call it after each replay.

        The captured step itself is not counted. Raises what `optimizer.step()`
        raises, after the step.
        """
        self._check_attached("step_done()")
        self._before_step()
        self._after_step()

    def _check_attached(self, what: str) -> None:
        self._native.check()
        if self._attachment is None:
            raise InvalidArgument(
                f"call attach(model, optimizer) before {what}: without it no "
                "step counts")

    def _before_step(self) -> None:
        native = self._native
        if self._uncounted:
            return
        if native.stopped:
            native.check()
            return
        self._trained.check()
        if not native.step:
            raise InvalidArgument(
                "there is no step to train yet, and the wait for it was "
                "interrupted: call island.wait() before optimizer.step()")

    def _after_step(self) -> None:
        # Every line counts: it runs in each step, with cold caches.
        native, hook, step = self._native, self._hooks[-1], self._native.step
        attachment = self._attachment
        if self._uncounted or native.stopped:
            return
        if attachment.stream is not None:
            if attachment.stream.is_captured():
                return
            attachment.stream.follow(native)
        if hook.skipped():
            # Reports of it do not count for the next step.
            self._tokens = self._loss = None
            return
        if (step % self._round_steps % self._send_gap
                and step != self.run.total_steps):
            attachment.check_one(native)
        else:
            attachment.check_all(native)
        tokens = (self._tokens_per_step if self._tokens is None else
                  self._tokens * self._ranks.size)
        if tokens > self._most_tokens:
            self._warn_of_tokens(step, tokens)
            tokens = self._tokens_per_step
        loss = math.nan
        if self._loss is not None or self._losses:
            for of_step, loss in self._losses.read(step, self._loss):
                if not math.isfinite(loss):
                    self._explain(of_step, loss)
                    loss = math.nan
        self._tokens, self._loss, self._next_step = None, None, step
        native.after_step(tokens, loss, hook.learning_rate(),
                          self._step_timeout)

    def _warn_of_tokens(self, step: int, tokens: int) -> None:
        # If a scaler skips a step without the hook's knowledge, reports of it
        # add to those of the next one.
        if self._last_excess != step - 1:
            self._last_excess = max(self._last_excess, step)
            return
        _log.warning("step %s has %s tokens over all ranks, and the run counts "
                     "at most %s (batch_size times sequence_length); report() "
                     "takes those of its own rank, once for each step", step,
                     tokens, self._most_tokens)
        self._last_excess = math.inf

    def _explain(self, step: int, loss: float) -> None:
        """Raises Diverged if parameters are not finite either.

        A scaler that skips steps leaves the parameters as they are.
        """
        said = f"the loss of step {step} is {loss}"
        name = self._attachment.not_finite()
        if name is None:
            _log.warning("%s, though all parameters are finite", said)
            return
        error = Diverged(f"{said}, and {name} has values that are not finite: "
                         "training has diverged, or a batch is damaged")
        self._native.fail(error)
        raise error

    # --- Beside training. ---

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keeps steps of the optimizer in this block from counting as the
        run's."""
        self._uncounted += 1
        try:
            yield
        finally:
            self._uncounted -= 1

    def synchronize(self) -> None:
        """Waits for the updates of everything that the island has sent, and
        applies them at once.

        Training stands still meanwhile, so use it only where needed: before a
        `merged_weights()` that must contain everything sent so far. All ranks
        call it together, between steps.

        Raises:
          Timeout: the updates did not come within step_timeout; call `wait` to
            continue.
        """
        self._check_attached("synchronize()")
        self.wait()
        if self._native.stopped:
            return
        self._attachment.follow(self._native)
        self._native.synchronize(self._step_timeout)
        self._attachment.values_changed()

    @contextlib.contextmanager
    def merged_weights(self) -> Iterator[None]:
        """Puts the run's merged values into the model, for evaluation.

        These are of the newest version of each fragment that has arrived. The
        island's own values, which differ by the training since, are restored
        afterwards; calls that need them, such as save() and leave(), raise
        InvalidArgument in the block. All ranks call it together. Takes 4 bytes
        of host memory for each value of a rank, and 8 more on rank 0 for each
        value of the model.
        """
        self._check_attached("merged_weights()")
        with self.paused(), self._attachment.merged(self._native, self._ranks):
            yield

    def audit(self, compute_loss: "Callable[[Any, Any], torch.Tensor]",
              batch: Any, every: int = 1000) -> None:
        """Finds a rank that computes wrong numbers without an error.

        Call it in each step, on all ranks: a fault otherwise spreads to the
        parameters of all. In every `every`th step all ranks compute the
        gradient of rank 0's batch, and compare its bits and those of the
        parameters. Ranks must compute alike: on processors of one kind, with
        deterministic kernels (torch.use_deterministic_algorithms) and equally
        many threads. An audit changes nothing of the training.

        A model that FSDP2 shards is gathered one module at a time, once more
        than for a step, and no rank keeps a whole gradient.

        Args:
          compute_loss: returns the loss of a batch, `compute_loss(model,
            batch)`. The model comes without DistributedDataParallel and
            torch.compile, so it waits for no other rank.
          batch: anything that can be pickled, in host memory, such as what a
            DataLoader yields.
          every: the steps between two audits.

        Raises:
          DataLoss: the ranks differ, and the island has ended. The message
            names the rank that differs from all others, which agree. With two
            ranks it is not known which is wrong.
          Unimplemented: ranks have parts of the parameters that FSDP2 does not
            gather.
        """
        self._check_attached("audit()")
        native, ranks = self._native, self._ranks
        if ranks.size == 1 or not native.step or native.step % every:
            return
        from .audit import audited
        self._attachment.follow(native)
        native.audit(*audited(self._attachment, compute_loss,
                              ranks.from_first(batch)))

    def sampler(self, dataset: Union[Sized, int], batch_size: int, *,
                seed: int = 0, batches_per_step: int = 1) -> Sampler:
        """Returns a batch sampler for `DataLoader(dataset, batch_sampler=...)`.

        Islands and ranks get disjoint samples; more islands than the run's
        data.shards share parts, each in another order. A loop that is started
        again continues with the batch of the run's next step. See Sampler.

        Args:
          dataset: has a length, or is the number of samples.
          batch_size: the samples in a batch of this rank.
          seed: the order of samples.
          batches_per_step: the batches for each step of the optimizer.
        """
        if not isinstance(dataset, (int, Sized)):
            raise InvalidArgument(
                f"a {type(dataset).__name__} has no length. Without a sampler, "
                "island.run.shard of island.run.shards is this island's part "
                "of the data")
        size = dataset if isinstance(dataset, int) else len(dataset)
        ranks = self._ranks
        return Sampler(size, batch_size,
                       part=self.run.shard, parts=self.run.shards,
                       rank=ranks.rank, ranks=ranks.size,
                       next_step=lambda: self.step, order=self.run.data_order,
                       total_steps=self.total_steps, seed=seed,
                       is_over=lambda: self._native.stopped,
                       batches_per_step=batches_per_step)

    # --- State. ---

    def save(self, directory: Path) -> None:
        """Writes the island's state to a folder, for `join(resume=...)`: 8
        bytes a parameter. Save the optimizer's state beside it. All ranks call
        it between steps."""
        self._check_attached("save()")
        if not (self._native.step or self._native.ended):
            raise InvalidArgument("there is no step to train: call "
                                  "island.wait() before save()")
        self._attachment.follow(self._native)
        self._native.save(directory)

    def state_dict(self) -> Dict[str, Any]:
        """Returns what `save` writes as one value, for torch.save and
        torch.distributed.checkpoint; empty on ranks other than 0.

        The value is None before attach(), as a place to load into, and once the
        run is over for the island, because nothing is left to continue.
        """
        packed = None
        is_over = self._native.stopped and not self._native.ended
        if self._attachment is not None and not is_over:
            with tempfile.TemporaryDirectory() as folder:
                self.save(folder)
                packed = None if self._ranks.rank else pack(folder)
        return {} if self._ranks.rank else {"island": packed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state. Call before attach(), on all ranks."""
        if self._attachment is not None:
            raise InvalidArgument("call load_state_dict() before attach()")
        resume = self._options["resume_directory"]

        def write(folder: str) -> None:
            if "island" not in state:
                raise InvalidArgument(
                    f"this is no island's state, but has {sorted(state)}; pass "
                    "what state_dict() returned on rank 0")
            if state["island"] is not None:
                unpack(state["island"], folder)
                self._options["resume_directory"] = folder

        with tempfile.TemporaryDirectory() as folder:
            self._ranks.first(lambda _: None if self._ranks.rank else
                              write(folder))
            # Another rank may still be hearing of the run from this one.
            self._ranks.barrier()
            self._native.fail(Left("resumes from a saved state"))
            self._native.close()
            try:
                self._open()
            finally:
                self._options["resume_directory"] = resume

    # --- The end. ---

    def leave(self, reason: str = "the training loop asks to") -> None:
        """Hands in the training, and leaves the run in order. All ranks call it
        together. Does nothing if the island has ended. The operator sees the
        reason, unless `request_leave` has given one before."""
        native = self._native
        if native.stopped or self._attachment is None:
            return
        self._attachment.follow(native, leaves=True)
        if self._ranks.rank == 0 and not self._is_asked_to_leave:
            self.request_leave(reason)
        limit = self._options["leave_timeout_seconds"] + PATIENCE_SECONDS
        if native.step:
            # The step under way counts no tokens.
            native.after_step(0, math.nan, 0.0, limit)
        else:
            native.next_step(limit)

    def close(self) -> None:
        """Ends the island at once. The training since its last contribution is
        lost unless `leave` was called before."""
        for hook in self._hooks:
            hook.remove()
        if self._sigterm is not None:
            self._sigterm.remove()
        self._native.close()

    def __enter__(self) -> "Island":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException], _: Any) -> None:
        reason = f"training ended at step {self.step} of {self.total_steps}"
        if error is not None:
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        elif (self._attachment is not None and not self._native.stopped
              and not self._is_asked_to_leave and self._ranks.rank == 0):
            _log.warning("%s, so the island leaves: does the loop end with its "
                         "data?", reason)
        failed = isinstance(error, Exception) and not self._is_signalled
        try:
            # Ranks leave together, and cannot if one alone has failed. A signal
            # may have ended the processes of all ranks' DataLoaders.
            if error is None or (self._attachment is not None and (
                    isinstance(error, KeyboardInterrupt) or (
                        (self._ranks.size == 1 or self._is_signalled)
                        and not isinstance(error, Error)))):
                self.leave(f"failed: {reason}" if failed else reason)
            else:
                # The coordinator and the other ranks hear why.
                self._native.fail((Error if failed else Left)(reason))
            if error is None and self._attachment is None:
                _log.warning("the island ends without a step: attach(model, "
                             "optimizer) was never called")
        except Error as failure:
            if error is None:
                raise
            _log.warning("the island did not leave properly: %s", failure)
        finally:
            self.close()
