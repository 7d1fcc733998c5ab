# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Does the work of worker/model/cuda/ops_cuda_benchmark.cc in PyTorch.

Runs the same models and batches in bf16 with torch.compile, scaled-dot-product
attention and the fused AdamW, then attention and AdamW by themselves. Reads the
sizes, and our figures, from the JSON that the benchmark has written, and prints
both and their ratio. Needs PyTorch 2.5 or newer and its GPU; tests/gpu/run.sh
runs it where it finds them.
"""

import argparse
import functools
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

EPSILON = 1e-5
REPETITIONS = 15
SKIPPED = 77


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_seconds(device, step):
    """Times step(), after three calls to compile and warm up."""
    seconds = []
    for repetition in range(REPETITIONS + 3):
        wait(device)
        begin = time.perf_counter()
        step()
        wait(device)
        if repetition >= 3:
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def rms_norm(x, gain):
    scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPSILON)
    return (x * scale * gain).to(x.dtype)


class Block(torch.nn.Module):
    """A layer of the Llama layout, with fused projections."""

    def __init__(self, hidden, intermediate, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm1 = torch.nn.Parameter(torch.ones(hidden))
        self.norm2 = torch.nn.Parameter(torch.ones(hidden))
        linear = functools.partial(torch.nn.Linear, bias=False)
        self.qkv = linear(hidden, 3 * hidden)
        self.output = linear(hidden, hidden)
        self.gate_up = linear(hidden, 2 * intermediate)
        self.down = linear(intermediate, hidden)
        residual = 0.02 / math.sqrt(2 * layers)
        for weight, deviation in ((self.qkv.weight, 0.02),
                                  (self.output.weight, residual),
                                  (self.gate_up.weight, 0.02),
                                  (self.down.weight, residual)):
            torch.nn.init.normal_(weight, std=deviation)

    def forward(self, x, cosine, sine):
        batch, length, hidden = x.shape
        qkv = self.qkv(rms_norm(x, self.norm1))
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in qkv.chunk(3, -1))

        def rotate(part):
            low, high = part.chunk(2, -1)
            turned = part * cosine + torch.cat([-high, low], -1) * sine
            return turned.to(part.dtype)

        mixed = F.scaled_dot_product_attention(
            rotate(query), rotate(key), value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, length, hidden)
        x = x + self.output(mixed)
        gate, up = self.gate_up(rms_norm(x, self.norm2)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(torch.nn.Module):
    """Returns the mean loss; the embedding is the head, too."""

    def __init__(self, size):
        super().__init__()
        hidden = size["hidden"]
        self.embedding = torch.nn.Embedding(size["vocab"], hidden)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = torch.nn.ModuleList([
            Block(hidden, size["intermediate"], size["heads"], size["layers"])
            for _ in range(size["layers"])])
        self.norm = torch.nn.Parameter(torch.ones(hidden))
        head_size = hidden // size["heads"]
        frequency = 10000.0 ** (-torch.arange(0, head_size, 2) / head_size)
        angle = torch.outer(torch.arange(size["length"]), frequency)
        self.register_buffer("cosine", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sine", torch.cat([angle, angle], -1).sin())

    def forward(self, tokens, targets):
        x = self.embedding(tokens).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = F.linear(rms_norm(x, self.norm), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure_training(size, device):
    """Returns tokens per second of inner steps: fp32 weights, bf16 products."""
    torch.manual_seed(1)
    model = Model(size).to(device)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights if w.dim() > 1], "weight_decay": 0.1},
         {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0}],
        lr=1e-4, betas=(0.9, 0.95), fused=device.type == "cuda")
    compiled = torch.compile(model)
    count = size["micro_batch"] * size["length"]
    index = torch.arange(count + 1, device=device)
    stream = (index * index * 31 + index) % size["vocab"]
    shape = (size["micro_batch"], size["length"])
    tokens, targets = stream[:-1].view(shape), stream[1:].view(shape)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = compiled(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()

    return count / median_seconds(device, step)


def measure_attention(size, device):
    """Returns the seconds of causal attention, forward and backward."""
    def random(heads):
        return torch.randn(size["batch"], heads, size["length"],
                           size["head_size"], device=device,
                           dtype=torch.bfloat16, requires_grad=True)

    query = random(size["heads"])
    key, value = random(size["kv_heads"]), random(size["kv_heads"])

    def forward():
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=True,
            enable_gqa=size["heads"] != size["kv_heads"])

    with torch.no_grad():
        forward_seconds = median_seconds(device, forward)
    output = forward()
    d_output = torch.randn_like(output)
    backward_seconds = median_seconds(
        device, lambda: torch.autograd.grad(
            output, (query, key, value), d_output, retain_graph=True))
    return forward_seconds, backward_seconds


def measure_adamw(values, device):
    """Returns bytes per second, counting 28 for each value."""
    weight = torch.nn.Parameter(torch.randn(values, device=device))
    weight.grad = torch.randn(values, device=device)
    optimizer = torch.optim.AdamW([weight], fused=device.type == "cuda")
    return 28 * values / median_seconds(device, optimizer.step)


def compare(figures, device):
    """Prints each of our figures; returns PyTorch's and the ratios."""
    rows = []

    def report(name, unit, ours, theirs):
        rows.append({"name": name, "unit": unit, "causeway": ours,
                     "pytorch": theirs, "ratio": ours / theirs})
        print(f"{name:44} {ours:12.4g} {theirs:12.4g} {unit:9}"
              f" {ours / theirs:6.2f}", flush=True)

    print(f"{'':44} {'causeway':>12} {'pytorch':>12} {'':9} {'ratio':>6}")
    def training(size):
        report(f"training {size['model']}", "tokens/s",
               size["tokens_per_second"], measure_training(size, device))

    def attention(size):
        name = (f"attention of {size['heads']} heads of {size['head_size']}, "
                f"length {size['length']}, by {size['by']}")
        forward, backward = measure_attention(size, device)
        report(name, "1/s", 1 / size["forward_seconds"], 1 / forward)
        report("  its gradient", "1/s", 1 / size["backward_seconds"],
               1 / backward)

    def adamw(size):
        report("AdamW", "bytes/s", size["bytes_per_second"],
               measure_adamw(size["values"], device))

    for kind in training, attention, adamw:
        for size in figures.get(kind.__name__, []):
            try:
                kind(size)
            except torch.OutOfMemoryError as error:
                print(f"{kind.__name__} is left out: {error}", flush=True)
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return rows


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("figures", help="what ops_cuda_benchmark --json wrote")
    flags.add_argument("--json", help="file to write both to")
    flags.add_argument("--device", default="cuda")
    flags = flags.parse_args()
    device = torch.device(flags.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU")
        sys.exit(SKIPPED)
    torch.set_float32_matmul_precision("high")
    with open(flags.figures, encoding="utf-8") as file:
        figures = json.load(file)
    rows = compare(figures, device)
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump({"pytorch": torch.__version__, "figures": rows}, file)


if __name__ == "__main__":
    main()
