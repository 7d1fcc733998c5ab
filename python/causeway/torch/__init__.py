# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Causeway for training loops in PyTorch."""

from causeway.torch.acco import Acco, StepResult
from causeway.torch.sharded_optimizer import NonFiniteError

__all__ = ["Acco", "NonFiniteError", "StepResult"]
