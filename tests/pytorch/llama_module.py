# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The Llama of tests/reference as a module that islands can attach.

tests/reference must be in the path.
"""

import llama
import torch


class Llama(torch.nn.Module):
    """Has parameters of a run's names and shapes, which are all 0."""

    def __init__(self, run):
        super().__init__()
        for tensor in run.tensors:
            *path, name = tensor.name.split(".")
            module = self
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            module.register_parameter(
                name, torch.nn.Parameter(torch.zeros(tensor.shape)))
        model = run.configuration["model"]
        self._config = {name: value for name, value in model.items() if value}

    def forward(self, windows):
        """Returns the mean loss of predicting each window's next tokens."""
        logits = llama.logits_of(windows[:, :-1],
                                 dict(self.named_parameters()), self._config)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                                 windows[:, 1:].flatten())


def windows_of(path: str, length: int) -> torch.Tensor:
    """Returns every `length` bytes of a file, with the byte that follows."""
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    return text.unfold(0, length + 1, length).long()
