# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Hugging Face's transformers as an island of a run.

    trainer = Trainer(model, arguments, train_dataset=data,
                      callbacks=[CausewayCallback("coordinator:7070")])
    trainer.train()

Needs transformers, which the rest of the package does not import.
"""

import os
from typing import Any, Optional

from transformers import (TrainerCallback, TrainerControl, TrainerState,
                          TrainingArguments)

from .island import Island
from .joining import join


class CausewayCallback(TrainerCallback):
    """Joins a run when training begins, and leaves it when training ends.

    The Trainer stops when the run is complete. Each checkpoint of the Trainer
    has the island's state, from which `resume_from_checkpoint` goes on. Steps
    count as many tokens as the run's configuration says.

    island: the island while training goes on.
    """

    island: Optional[Island] = None

    def __init__(self, coordinator: Optional[str] = None, **options: Any):
        """Takes what causeway.join takes, which is called later."""
        self._options = dict(options, coordinator=coordinator)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState,
                       control: TrainerControl, **kwargs: Any) -> None:
        optimizer = kwargs["optimizer"]
        options = dict(self._options)
        folder = self._folder(args, state)
        if state.global_step and os.path.isdir(folder):
            options["resume"] = folder
        self.island = join(**options)
        # accelerate wraps it.
        while hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        try:
            self.island.attach(kwargs["model"], optimizer)
        except BaseException:
            self._close()
            raise
        control.should_training_stop = self.island.should_stop

    def on_step_end(self, args: TrainingArguments, state: TrainerState,
                    control: TrainerControl, **kwargs: Any) -> None:
        if self.island is not None and self.island.should_stop:
            control.should_training_stop = True

    def on_save(self, args: TrainingArguments, state: TrainerState,
                control: TrainerControl, **kwargs: Any) -> None:
        if self.island is not None and not self.island.should_stop:
            self.island.save(self._folder(args, state))

    def on_train_end(self, args: TrainingArguments, state: TrainerState,
                     control: TrainerControl, **kwargs: Any) -> None:
        try:
            if self.island is not None:
                self.island.leave()
        finally:
            self._close()

    def _close(self) -> None:
        if self.island is not None:
            self.island.close()
        self.island = None

    @staticmethod
    def _folder(args: TrainingArguments, state: TrainerState) -> str:
        return os.path.join(args.output_dir or "",
                            f"checkpoint-{state.global_step}", "causeway")
