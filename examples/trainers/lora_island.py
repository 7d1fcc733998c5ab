# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer that trains an adapter of PEFT, as an island. BASE is the folder or
name of the model, which is the same on all islands and never sent.

    python3 lora_island.py BASE create run
    CAUSEWAY_COORDINATOR=127.0.0.1:7070 CAUSEWAY_ISLAND=east \\
        python3 lora_island.py BASE east.txt adapter
"""

import sys

import causeway
from causeway.transformers import CausewayCallback
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from create_run import LENGTH, samples

base, data, out = sys.argv[1:]
model = get_peft_model(
    AutoModelForCausalLM.from_pretrained(base),
    LoraConfig(r=8, lora_alpha=16, target_modules="all-linear",
               task_type="CAUSAL_LM"))
if data == "create":
    causeway.create_run(model, out, name="lora", total_steps=60, batch_size=8,
                        sequence_length=LENGTH, inner_steps_per_round=10,
                        overlap_steps=2, min_islands=2, trainable_only=True)
    sys.exit()
arguments = TrainingArguments(out, max_steps=100000, learning_rate=5e-3,
                              per_device_train_batch_size=8, report_to=[])
trainer = Trainer(
    model, arguments, callbacks=[CausewayCallback()],
    train_dataset=[{"input_ids": row, "labels": row} for row in samples(data)])
trainer.train()
model.save_pretrained(out)
