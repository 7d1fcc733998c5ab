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
    """Returns a number that changes with any bit of a parameter."""
    return sum(float(parameter.detach().double().abs().sum())
               for parameter in model.parameters())


class Steps:
    """The island's next steps, when training begins and after each batch."""

    def __init__(self, callback, last, fails):
        self._callback, self._last, self._fails = callback, last, fails
        self.steps = []

    def add(self):
        """Returns whether this step must be the last one."""
        self.steps.append(self._callback.island.step)
        if self.steps[-1] == self._fails:
            raise ValueError("a bad batch")
        return len(self.steps) == self._last


def transformers_trainer(join, output, last=None, fails=None, resume=None,
                         model=None, callbacks=(), **arguments):
    """Trains; returns the island's steps and the model."""
    import transformers

    from causeway.transformers import CausewayCallback
    callback = CausewayCallback(**join)
    steps = Steps(callback, last, fails)

    class Noted(transformers.TrainerCallback):

        def on_train_begin(self, args, state, control, **kwargs):
            steps.add()

        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop |= steps.add()

    fields = dict(output_dir=output, max_steps=1000, learning_rate=1e-2,
                  per_device_train_batch_size=2, use_cpu=True,
                  gradient_accumulation_steps=2, report_to=[],
                  disable_tqdm=True, save_strategy="steps")
    model = model or llama()
    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(**{**fields, **arguments}),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows()],
        eval_dataset=[{"input_ids": row, "labels": row} for row in rows()[:4]],
        callbacks=[callback, Noted(), *callbacks])
    try:
        trainer.train(resume_from_checkpoint=resume)
        assert callback.island is None
    finally:
        callback.close()
    return steps.steps, model


def adapted(base=None, **config):
    """Returns a model with a LoRA adapter for its attention."""
    import peft
    base = base or llama()
    # Islands draw unlike values for their adapters.
    torch.seed()
    return peft.get_peft_model(
        base, peft.LoraConfig(**{
            "r": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
            "task_type": "CAUSAL_LM", **config}))


def lora_trainer(join, output, model=None, **arguments):
    """Trains an adapter, and saves it; returns the island's steps and the
    model."""
    steps, model = transformers_trainer(join, output, model=model or adapted(),
                                        **arguments)
    if int(os.environ.get("RANK", 0)) == 0:
        model.save_pretrained(os.path.join(output, "adapter"))
    return steps, model


class Tiny(torch.nn.Module):
    """A language model whose loss forward returns."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = torch.nn.Embedding(32, 16)
        self.head = torch.nn.Linear(16, 32)

    def forward(self, tokens):
        logits = self.head(self.embedding(tokens[:, :-1]))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                                 tokens[:, 1:].flatten())


def lightning_trainer(join, output, last=None, fails=None, resume=None,
                      package="lightning.pytorch", device="cpu", callbacks=(),
                      **arguments):
    """Trains a module that is made on a device; returns the island's steps and
    the model."""
    import importlib
    lightning = importlib.import_module(package)

    from causeway.lightning import CausewayCallback
    callback = CausewayCallback(**join, module="network")
    steps = Steps(callback, last, fails)

    class Module(lightning.LightningModule):

        def __init__(self):
            super().__init__()
            self.network = Tiny()

        def training_step(self, batch, _):
            return self.network(batch)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    class Noted(lightning.Callback):

        def on_train_start(self, trainer, pl_module):
            steps.add()

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, index):
            trainer.should_stop |= steps.add()

    fields = dict(accelerator="cpu", devices=int(os.environ.get(
        "WORLD_SIZE", 1)), max_epochs=-1, logger=False,
                  enable_checkpointing=False, enable_progress_bar=False,
                  enable_model_summary=False)
    every = arguments.pop("save_steps", None)
    callbacks = [*callbacks, callback, Noted()]
    if every:
        fields["enable_checkpointing"] = True
        callbacks.append(
            lightning.callbacks.ModelCheckpoint(
                output, "{step}", every_n_train_steps=every, save_top_k=-1))
    module = Module().to(device)
    trainer = lightning.Trainer(callbacks=callbacks, **{**fields, **arguments})
    try:
        trainer.fit(module, torch.utils.data.DataLoader(rows(), batch_size=2),
                    ckpt_path=resume)
    finally:
        assert callback.island is None
    return steps.steps, module


def accelerate_loop(join, output, last=None, fails=None, resume=None,
                    save_steps=None):
    """Trains; returns the island's steps and the model."""
    import types

    import accelerate

    import causeway
    accelerator = accelerate.Accelerator(cpu=True,
                                         gradient_accumulation_steps=2)
    with causeway.join(**join) as island:
        steps = Steps(types.SimpleNamespace(island=island), last, fails)
        model = Tiny()
        inner, optimizer = model, torch.optim.AdamW(model.parameters(), 1e-2)
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.register_for_checkpointing(island)
        if resume:
            accelerator.load_state(resume)
        island.attach(model, optimizer)
        sampler = island.sampler(rows(), 2, batches_per_step=2)
        for batch in torch.utils.data.DataLoader(rows(), batch_sampler=sampler):
            with accelerator.accumulate(model):
                loss = model(batch)
                accelerator.backward(loss)
                island.report(tokens=batch.numel(), loss=loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                if island.step - 1 == save_steps:
                    accelerator.save_state(output)
                if steps.add():
                    break
            if island.should_stop:
                break
    return steps.steps, inner


def main():
    torch.set_num_threads(1)
    # Trainers write to stdout, too.
    with contextlib.redirect_stdout(sys.stderr):
        steps, model = globals()[sys.argv[1]](**json.loads(sys.argv[2]))
    say("end", steps=steps, rank=os.environ.get("RANK"),
        checksum=checksum(model))


if __name__ == "__main__":
    main()
