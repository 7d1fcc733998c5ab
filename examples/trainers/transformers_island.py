# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of transformers as an island.

    CAUSEWAY_COORDINATOR=127.0.0.1:7070 CAUSEWAY_ISLAND=east \\
        python3 transformers_island.py east.txt trained
"""

import sys

from causeway.transformers import CausewayCallback
from transformers import Trainer, TrainingArguments

from create_run import llama, samples

data, out = sys.argv[1:]
model = llama()
arguments = TrainingArguments(out, max_steps=100000, learning_rate=2e-3,
                              per_device_train_batch_size=8, report_to=[])
trainer = Trainer(
    model, arguments, callbacks=[CausewayCallback()],
    train_dataset=[{"input_ids": row, "labels": row} for row in samples(data)])
trainer.train()
model.save_pretrained(out)
