# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The common part of the trainers' callbacks."""

import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any, List, Mapping, Optional

from .island import Island
from .joining import join

if TYPE_CHECKING:
    import torch

    from .island import Optimizers


def need(package: str, oldest: str) -> None:
    """Raises ImportError, with what to install, unless a package is there and
    has at least this version."""
    try:
        found = str(importlib.import_module(package).__version__)
    except ImportError as error:
        raise ImportError(
            f"Causeway's callback needs {package}, which cannot be imported "
            f"({error}): pip install '{package}>={oldest}'") from error
    if _numbers(found) < _numbers(oldest):
        raise ImportError(f"Causeway's callback needs {package} {oldest} or "
                          f"later, and this is {found}: pip install "
                          f"'{package}>={oldest}'")


def _numbers(version: str) -> List[int]:
    return [int(number) for number in re.findall("[0-9]+", version)[:2]]


class IslandCallback:
    """An island that lives while a trainer trains.

    island: the island, during training.
    """

    island: Optional[Island] = None

    def __init__(self, coordinator: Optional[str] = None, **options: Any):
        """Takes the arguments of causeway.join, which is called later."""
        inspect.signature(join).bind(coordinator, **options)
        self._options = dict(options, coordinator=coordinator)

    def _begin(self, model: "torch.nn.Module", optimizers: "Optimizers", *,
               resume: Optional[str] = None,
               state: Optional[Mapping[str, Any]] = None) -> None:
        """Joins and attaches; from a folder or a state, unless it is empty."""
        # The trainer may not have reported that an exception ended training.
        self.close()
        options = dict(self._options)
        if resume:
            options.setdefault("resume", resume)
        self.island = join(**options)
        try:
            if state:
                self.island.load_state_dict(state)
            self.island.attach(model, optimizers)
        except BaseException as error:
            self._end(error)
            raise

    @property
    def _trains(self) -> bool:
        return self.island is not None and not self.island.should_stop

    def _report(self, loss: Any) -> None:
        """Reports a loss of the last steps with the coming one."""
        if self.island is not None and self._trains:
            self.island.report(None, loss)

    def _end(self, error: Optional[BaseException] = None) -> None:
        """Leaves as the end of the island's `with` block does."""
        island, self.island = self.island, None
        if island is not None:
            island.__exit__(type(error) if error else None, error, None)

    def close(self) -> None:
        """Ends the island at once if there is one."""
        island, self.island = self.island, None
        if island is not None:
            island.close()
