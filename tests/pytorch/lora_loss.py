# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a LoRA adapter of PEFT on a small Llama, on an island or, with the
variables of init_process_group in the environment, data parallel.

With --pretrain it makes the Llama, and with --create_run the run instead.
"""

import argparse

import fitting
import peft
import torch
import train_gpt
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

import causeway


class Loss(torch.nn.Module):
    """The mean loss of predicting each byte of windows from those before."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, windows):
        return self.model(input_ids=windows, labels=windows).loss


def optimizer_of(args, model):
    return torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], args.lr,
        (0.9, 0.95), weight_decay=0)


def pretrain(args):
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=352,
        num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=2 * fitting.LENGTH, pad_token_id=None,
        bos_token_id=None, eos_token_id=None))
    replica = Loss(model)
    data, held_out = fitting.split(args.data)
    batches = train_gpt.endless(
        DataLoader(data, batch_size=2 * fitting.BATCH, shuffle=True))
    fitting.fit(args.steps, replica, replica, batches, held_out,
                [optimizer_of(args, replica)])
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
        total_steps=args.steps, batch_size=fitting.BATCH,
        sequence_length=fitting.LENGTH,
        inner_steps_per_round=args.round, overlap_steps=args.overlap,
        format=args.format, outer_learning_rate=args.outer[0],
        outer_momentum=args.outer[1], min_islands=2, max_islands=2,
        trainable_only=True)


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
        model = Loss(adapted(args))
        fitting.train(args, model, model.model, [optimizer_of(args, model)])


if __name__ == "__main__":
    main()
