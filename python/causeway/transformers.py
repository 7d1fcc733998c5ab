# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Hugging Face's transformers as an island of a run.

    trainer = Trainer(model, arguments, train_dataset=data,
                      callbacks=[CausewayCallback("coordinator:7070")])
    trainer.train()

Needs transformers, which the rest of the package does not import.
"""

import logging
import os
from typing import Any, Dict, Optional

from .callback import IslandCallback, need

# With an older PyTorch, transformers silently disables it.
need("torch", "2.6")
# Before, load_best_model_at_end restored the best values before the last log,
# at which the island leaves.
need("transformers", "5.3")

# pylint: disable=wrong-import-position
from transformers import (TrainerCallback, TrainerControl, TrainerState,
                          TrainingArguments)

_log = logging.getLogger("causeway")


class CausewayCallback(IslandCallback, TrainerCallback):
    """Joins a run when training begins, and leaves it when training ends.

    The Trainer stops when the run is complete. Each checkpoint of the Trainer
    has the island's state, from which `resume_from_checkpoint` continues; pass
    `resume="checkpoint-500/causeway"` if the checkpoint is not in the Trainer's
    output_dir. Steps count as many tokens as the run's configuration says, and
    each loss that the Trainer logs is reported to the run. A Trainer does not
    tell callbacks of exceptions: call close() if one has ended training and the
    process lives on.
    """

    def on_train_begin(self, args: TrainingArguments, state: TrainerState,
                       control: TrainerControl, **kwargs: Any) -> None:
        resume = self._folder(args, state) if state.global_step else None
        if resume and not os.path.isdir(resume):
            if "resume" not in self._options:
                _log.warning("there is no %s: the island begins with the run's "
                             "parameters", resume)
            resume = None
        self._begin(kwargs["model"], kwargs["optimizer"], resume=resume)
        self.on_step_end(args, state, control)

    def on_step_end(self, args: TrainingArguments, state: TrainerState,
                    control: TrainerControl, **kwargs: Any) -> None:
        if not self._trains:
            control.should_training_stop = True

    def on_save(self, args: TrainingArguments, state: TrainerState,
                control: TrainerControl, **kwargs: Any) -> None:
        if self.island is not None and self._trains:
            self.island.save(self._folder(args, state))

    def on_log(self, args: TrainingArguments, state: TrainerState,
               control: TrainerControl, logs: Optional[Dict[str, Any]] = None,
               **kwargs: Any) -> None:
        logs = logs or {}
        if "loss" in logs:
            self._report(float(logs["loss"]))
        # The last log comes before load_best_model_at_end restores older
        # values, which must not be handed in.
        if "train_runtime" in logs:
            self._end()

    def on_train_end(self, args: TrainingArguments, state: TrainerState,
                     control: TrainerControl, **kwargs: Any) -> None:
        self._end()

    @staticmethod
    def _folder(args: TrainingArguments, state: TrainerState) -> str:
        return os.path.join(args.output_dir or "",
                            f"checkpoint-{state.global_step}", "causeway")
