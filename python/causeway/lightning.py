# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Lightning as an island of a run.

    trainer = Trainer(callbacks=[CausewayCallback("coordinator:7070")])
    trainer.fit(module, loader)

Needs lightning or pytorch_lightning, which the rest of the package does not
import.
"""

from importlib.util import find_spec
from typing import Any, Dict, Optional

from .callback import IslandCallback, need
from .errors import ModelMismatch

need("torch", "1.13")
# The callback serves the Trainers of both packages, whichever its base is from.
if find_spec("lightning") or not find_spec("pytorch_lightning"):
    need("lightning", "2.0")
    # pylint: disable=ungrouped-imports,wrong-import-position
    from lightning.pytorch.callbacks import Callback
else:
    need("pytorch_lightning", "2.0")
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]


class CausewayCallback(IslandCallback, Callback):
    """Joins a run when training begins, and leaves it when training ends.

    The Trainer stops when the run is complete. Each of its checkpoints has the
    island's state, from which `fit(ckpt_path=...)` continues. Steps count as
    many tokens as the run's configuration says, and have the loss that
    training_step returns.
    """

    def __init__(self, coordinator: Optional[str] = None, *, module: str = "",
                 **options: Any):
        """Takes the arguments of causeway.join, which is called later.

        Args:
          coordinator: see join.
          module: the part of the LightningModule that is the run's model, such
            as "network"; default: all of it.
          **options: see join.
        """
        super().__init__(coordinator, **options)
        self._module = module
        self._state: Dict[str, Any] = {}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        # At the end of training others may put something else into the model,
        # such as averages, so this one must come first. The Trainer is going
        # through the old list.
        trainer.callbacks = [self, *(other for other in trainer.callbacks
                                     if other is not self)]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        state, self._state = self._state, {}
        self._begin(pl_module.get_submodule(self._module), trainer.optimizers,
                    state=state)
        self._stop_with_the_run(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any,
                           *_: Any) -> None:
        # With a module that optimizes by itself, there may be no loss.
        if isinstance(outputs, dict) and "loss" in outputs:
            self._report(outputs["loss"] * trainer.accumulate_grad_batches)
        self._stop_with_the_run(trainer)

    def _stop_with_the_run(self, trainer: Any) -> None:
        if not self._trains:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any,
                     exception: BaseException) -> None:
        self._end(exception)
        # A module without values fails in any of several places. The Trainer
        # then also fails to tear itself down, with an error that says less.
        for name, parameter in pl_module.named_parameters():
            if parameter.is_meta:
                raise ModelMismatch(
                    f"{name} is on the device meta, so it has no values: make "
                    "the module on another device, or its layers in "
                    "configure_model()") from exception

    def state_dict(self) -> Dict[str, Any]:
        if self.island is None or not self._trains:
            return {}
        return self.island.state_dict()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._state = dict(state_dict)
