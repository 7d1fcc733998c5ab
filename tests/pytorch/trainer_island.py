# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of an island that a trainer's callback makes, as torchrun starts it.

Its arguments are the name of a function of this file and a JSON object with
the function's arguments; it writes events as causeway.testing.island_program
does.
"""

import contextlib
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
# pylint: disable=wrong-import-position
import torch

from causeway.testing.island_program import say

LENGTH = 8


def llama():
    import transformers
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=24,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
            max_position_embeddings=16, pad_token_id=None, bos_token_id=None,
            eos_token_id=None))


def rows():
    return torch.arange(64 * LENGTH).view(64, LENGTH) % 7


def checksum(model):
    """Returns what differs if a bit of a parameter does."""
    return sum(float(parameter.detach().double().abs().sum())
               for parameter in model.parameters())


class Steps:
    """The island's steps, of which it makes so many at most."""

    def __init__(self, callback, last=None):
        self._callback, self._last, self.steps = callback, last, []

    def add(self):
        """Returns whether the last step has been made."""
        self.steps.append(self._callback.island.step)
        return len(self.steps) == self._last


def transformers_trainer(join, output, last=None, resume=None, model=None,
                         callbacks=(), **arguments):
    """Trains; returns the island's steps and the model."""
    import transformers

    from causeway.transformers import CausewayCallback
    callback = CausewayCallback(**join)
    steps = Steps(callback, last)

    class Noted(transformers.TrainerCallback):

        def on_train_begin(self, args, state, control, **kwargs):
            steps.add()

        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop |= steps.add()

    fields = dict(output_dir=output, max_steps=1000, learning_rate=1e-2,
                  per_device_train_batch_size=2, use_cpu=True,
                  gradient_accumulation_steps=2, report_to=[],
                  disable_tqdm=True, save_strategy="no")
    model = model or llama()
    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(**{**fields, **arguments}),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows()],
        eval_dataset=[{"input_ids": row, "labels": row} for row in rows()[:4]],
        callbacks=[callback, Noted(), *callbacks])
    trainer.train(resume_from_checkpoint=resume)
    assert callback.island is None
    return steps.steps, model


def main():
    torch.set_num_threads(1)
    # Trainers write to stdout, too.
    with contextlib.redirect_stdout(sys.stderr):
        steps, model = globals()[sys.argv[1]](**json.loads(sys.argv[2]))
    say("end", steps=steps, rank=os.environ.get("RANK"),
        checksum=checksum(model))


if __name__ == "__main__":
    main()
