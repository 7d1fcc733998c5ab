# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a LoRA adapter of PEFT on a small Llama, on an island or, with RANK
and what else init_process_group reads in the environment, data parallel.

With --pretrain it makes the Llama, and with --create_run the run instead.
"""

import argparse
import os
import sys

sys.path.insert(0, "examples/pytorch")

# pylint: disable=wrong-import-position
import peft
import torch
import train_gpt
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from transformers import LlamaConfig, LlamaForCausalLM

import causeway
from causeway.sampler import Sampler

_LENGTH = 128
_BATCH = 8


class Loss(torch.nn.Module):
    """The mean loss of predicting each byte of windows from those before."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, windows):
        return self.model(input_ids=windows, labels=windows).loss


def split(paths):
    """Returns what is trained on, and up to 512 windows that are not."""
    data = train_gpt.Windows(paths, _LENGTH)
    every = 20 * max(1, len(data) // 10240)
    held_out = Subset(data, range(0, len(data), every))
    return Subset(data, [i for i in range(len(data)) if i % 20]), held_out


def fit(args, model, replica, batches, island=None):
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], args.lr,
        (0.9, 0.95), weight_decay=0)
    if island is not None:
        island.attach(model.model, optimizer)
    held_out = split(args.data)[1]
    print(f"validation loss {train_gpt.evaluate(model, held_out):.4f} at the "
          "start", flush=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: train_gpt.rate(step + 1, args.steps))
    for step, batch in enumerate(batches, 1):
        optimizer.zero_grad()
        loss = replica(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if island is not None:
            island.report(tokens=batch.numel() - len(batch), loss=loss)
        optimizer.step()
        scheduler.step()
        if step == args.steps or (island is not None and island.should_stop):
            break
    print(f"validation loss {train_gpt.evaluate(model, held_out):.4f} at the "
          "end")


def pretrain(args):
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=352,
        num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=2 * _LENGTH, pad_token_id=None,
        bos_token_id=None, eos_token_id=None))
    replica = Loss(model)
    batches = train_gpt.endless(
        DataLoader(split(args.data)[0], batch_size=2 * _BATCH, shuffle=True))
    fit(args, replica, replica, batches)
    model.save_pretrained(args.base)


def adapted(args):
    base = LlamaForCausalLM.from_pretrained(args.base,
                                            dtype=getattr(torch, args.dtype))
    model = peft.get_peft_model(base, peft.LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear",
        task_type="CAUSAL_LM"))
    model.train()
    return model


def create_run(args):
    causeway.create_run(
        adapted(args), args.create_run, name="lora", seed=args.seed,
        total_steps=args.steps, batch_size=_BATCH, sequence_length=_LENGTH,
        inner_steps_per_round=args.round, overlap_steps=args.overlap,
        format=args.format, outer_learning_rate=args.outer[0],
        outer_momentum=args.outer[1], min_islands=2, max_islands=2,
        trainable_only=True)


def train(args):
    data = split(args.data)[0]
    model = Loss(adapted(args))
    if "RANK" in os.environ:
        # The samples of an island; DDP gives all ranks rank 0's adapter.
        distributed.init_process_group("gloo")
        sampler = Sampler(len(data), _BATCH, distributed.get_rank(),
                          distributed.get_world_size(), lambda: 1, args.steps,
                          seed=args.seed)
        fit(args, model, DistributedDataParallel(model),
            DataLoader(data, batch_sampler=sampler))
        return
    with causeway.join() as island:
        sampler = island.sampler(data, _BATCH, seed=args.seed)
        fit(args, model, model, DataLoader(data, batch_sampler=sampler), island)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="folder of the Llama")
    parser.add_argument("--data", nargs="+", help="text files")
    parser.add_argument("--pretrain", action="store_true")
    parser.add_argument("--create_run", help="folder for the run's files")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", default="float32", help="of the base")
    parser.add_argument("--format", default="INT4")
    parser.add_argument("--round", type=int, default=10)
    parser.add_argument("--overlap", type=int, default=0)
    parser.add_argument("--outer", type=float, nargs=2, default=[0.8, 0.5])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    if args.pretrain:
        pretrain(args)
    elif args.create_run:
        create_run(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
