# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on the bytes of text files.

    python3 train_gpt.py --data corpus.txt
    torchrun --nproc_per_node 2 train_gpt.py --data corpus.txt
"""

import argparse
import math
import os

import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.attention(self.ln_1(x))
        qkv = qkv.view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        future = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ value
        x = x + self.projection(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, layers=4, width=160, heads=5, length=128):
        super().__init__()
        self.wte = nn.Embedding(256, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256, bias=False)
        self.head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = math.sqrt(2 * layers) if name.endswith(
                    ("projection.weight", "down.weight")) else 1
                nn.init.normal_(parameter, std=0.02 / scale)

    def forward(self, windows):
        windows = windows.to(self.wpe.weight.device)
        tokens, targets = windows[:, :-1], windows[:, 1:]
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Windows(Dataset):
    """Every `length` bytes of the files, with the byte that follows."""

    def __init__(self, paths, length):
        text = b"".join(open(path, "rb").read() for path in paths)
        self.bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.length = length

    def __len__(self):
        return (len(self.bytes) - 1) // self.length

    def __getitem__(self, index):
        begin = index * self.length
        return self.bytes[begin:begin + self.length + 1].long()


def rate(step, steps, warmup=60):
    """Returns a step's share of the peak rate; steps count from 1."""
    progress = min(1, max(0, step - warmup) / max(1, steps - warmup))
    return min(1, step / warmup) * (0.55 + 0.45 * math.cos(math.pi * progress))


@torch.no_grad()
def evaluate(model, data):
    losses = [model(batch) for batch in DataLoader(data, batch_size=32)]
    return sum(losses).item() / len(losses)


def endless(loader):
    while True:
        yield from loader


def train(args):
    data = Windows(args.data, args.length)
    # A twentieth is never trained on. Up to 512 windows of it are measured.
    every = 20 * max(1, len(data) // 10240)
    held_out = Subset(data, range(0, len(data), every))
    data = Subset(data, [i for i in range(len(data)) if i % 20])
    model = GPT(length=args.length).to(args.device)
    parallel = distributed.is_initialized()
    replica = DistributedDataParallel(model) if parallel else model
    # Gradients of small batches are noisy. Less momentum than the usual 0.9
    # helps every loop here, and islands, whose batches are smallest, most.
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, (0.8, 0.95))
    loader = DataLoader(data, batch_size=args.batch, shuffle=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate(step + 1, args.steps))
    print(f"validation loss {evaluate(model, held_out):.4f} at the start")
    for step, batch in enumerate(endless(loader), 1):
        optimizer.zero_grad()
        loss = replica(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            print(f"step {step}, loss {loss.item():.4f}", flush=True)
        if step == args.steps:
            break
    print(f"validation loss {evaluate(model, held_out):.4f} at the end")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", required=True, help="text files")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=8, help="of each process")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    return parser.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed + int(os.environ.get("RANK", 0)))
    if "RANK" in os.environ:
        on_gpu = args.device == "cuda"
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl" if on_gpu else "gloo")
    train(args)


if __name__ == "__main__":
    main()
