# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The work of worker/model/train_benchmark.cc in PyTorch.

The same model and inner step in fp32 on the CPU, written to be fast rather than
pretty: fused projections, matrix products over whole batches, the multi-tensor
AdamW. Prints tokens per second and peak memory. compare_pytorch.sh runs it with
the tuning that makes it fastest on Debian 12.
"""

import argparse
import math
import statistics
import time

import torch
import torch.nn.functional as F

BATCH, LENGTH = 8, 256
LAYERS, HIDDEN, INTERMEDIATE, HEADS, VOCAB = 6, 384, 1024, 6, 258
EPSILON = 1e-5


def parameter(*shape, stddev=0.02):
    value = torch.randn(*shape) * stddev if stddev else torch.ones(*shape)
    return value.requires_grad_()


def rms_norm(x, gain):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * gain


class Model:
    def __init__(self):
        residual = 0.02 / math.sqrt(2 * LAYERS)
        self.embedding = parameter(VOCAB, HIDDEN)
        self.blocks = [{
            "norm1": parameter(HIDDEN, stddev=0),
            "qkv": parameter(3 * HIDDEN, HIDDEN),
            "output": parameter(HIDDEN, HIDDEN, stddev=residual),
            "norm2": parameter(HIDDEN, stddev=0),
            "gate_up": parameter(2 * INTERMEDIATE, HIDDEN),
            "down": parameter(HIDDEN, INTERMEDIATE, stddev=residual),
        } for _ in range(LAYERS)]
        self.norm = parameter(HIDDEN, stddev=0)
        self.head = parameter(VOCAB, HIDDEN)
        dim = HIDDEN // HEADS
        frequency = 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        angle = torch.outer(torch.arange(LENGTH), frequency)
        self.cosine = torch.cat([angle, angle], -1).cos()
        self.sine = torch.cat([angle, angle], -1).sin()
        self.mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)

    def parameters(self):
        blocks = [p for block in self.blocks for p in block.values()]
        return [self.embedding, *blocks, self.norm, self.head]

    def rotate(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-high, low], -1) * self.sine

    def loss(self, tokens, targets):
        dim = HIDDEN // HEADS
        x = F.embedding(tokens, self.embedding)
        for block in self.blocks:
            qkv = F.linear(rms_norm(x, block["norm1"]), block["qkv"])
            qkv = qkv.view(BATCH, LENGTH, 3, HEADS, dim).permute(2, 0, 3, 1, 4)
            query, key = self.rotate(qkv[0]), self.rotate(qkv[1])
            query = query.reshape(-1, LENGTH, dim)
            key = key.reshape(-1, LENGTH, dim)
            value = qkv[2].reshape(-1, LENGTH, dim)
            scores = torch.baddbmm(self.mask, query, key.transpose(1, 2),
                                   alpha=1 / math.sqrt(dim))
            mixed = torch.bmm(scores.softmax(-1), value)
            mixed = mixed.view(BATCH, HEADS, LENGTH, dim).transpose(1, 2)
            x = x + F.linear(mixed.reshape(BATCH, LENGTH, HIDDEN),
                             block["output"])
            gate_up = F.linear(rms_norm(x, block["norm2"]), block["gate_up"])
            gate, up = gate_up.chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, block["down"])
        logits = F.linear(rms_norm(x, self.norm), self.head)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def peak_memory_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--repetitions", type=int, default=9)
    flags = flags.parse_args()
    torch.set_num_threads(flags.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)

    model = Model()
    weights = model.parameters()
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights if w.dim() > 1], "weight_decay": 0.1},
         {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0}],
        lr=1e-4, betas=(0.9, 0.95), foreach=True)
    index = torch.arange(BATCH * LENGTH + 1)
    stream = (index * index * 31 + index) % VOCAB
    tokens = stream[:-1].view(BATCH, LENGTH)
    targets = stream[1:].view(BATCH, LENGTH)
    seconds = []
    loss = None
    for _ in range(flags.repetitions + 2):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    seconds = seconds[2:]
    count = BATCH * LENGTH
    print(f"parameters: {sum(w.numel() for w in weights)}, "
          f"loss after the last step: {loss.item():.4f}")
    print(f"memory: {peak_memory_bytes() / 1e6:.1f} MB peak")
    print(f"pytorch: {count / min(seconds):.0f} tokens/s best, "
          f"{count / statistics.median(seconds):.0f} median "
          f"({1e3 * min(seconds):.1f} ms a step, best)")


if __name__ == "__main__":
    main()
