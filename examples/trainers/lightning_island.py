# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""A Trainer of Lightning as an island.

    CAUSEWAY_COORDINATOR=127.0.0.1:7070 CAUSEWAY_ISLAND=east \\
        python3 lightning_island.py east.txt trained
"""

import sys

import torch
from causeway.lightning import CausewayCallback
from lightning.pytorch import LightningModule, Trainer

from create_run import llama, samples


class Module(LightningModule):

    def __init__(self):
        super().__init__()
        self.llama = llama()

    def training_step(self, batch, _):
        return self.llama(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 2e-3)


data, out = sys.argv[1:]
module = Module()
trainer = Trainer(default_root_dir=out, logger=False, max_epochs=-1,
                  callbacks=[CausewayCallback(module="llama")])
trainer.fit(module, torch.utils.data.DataLoader(samples(data), batch_size=8,
                                                shuffle=True))
module.llama.save_pretrained(out)
