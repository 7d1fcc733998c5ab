# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A loop with accelerate as an island.

    CAUSEWAY_COORDINATOR=127.0.0.1:7070 CAUSEWAY_ISLAND=east \\
        python3 accelerate_island.py east.txt trained
"""

import sys

import causeway
import torch
from accelerate import Accelerator

from create_run import llama, samples

data, out = samples(sys.argv[1]), sys.argv[2]
accelerator = Accelerator()
model = llama()
with causeway.join() as island:
    model, optimizer = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 2e-3))
    island.attach(model, optimizer)
    for batch in torch.utils.data.DataLoader(
            data, batch_sampler=island.sampler(data, 8)):
        batch = batch.to(accelerator.device)
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        island.report(tokens=batch.numel(), loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        if island.should_stop:
            break
accelerator.unwrap_model(model).save_pretrained(out)
