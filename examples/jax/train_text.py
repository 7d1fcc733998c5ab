# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a model of bytes with JAX and Optax, as an island of a run.

    python3 train_text.py --create run
    causeway-coordinator --config run/run.textproto \\
        --initial_parameters run/initial.safetensors --state_dir state
    python3 train_text.py --data TEXT --island east

JAX's arrays never change, so each step copies the parameters to those that the
island exchanges, and back.
"""

import argparse
import contextlib
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax

from island import Island

CONTEXT, WIDTH, HIDDEN = 8, 16, 128


def init(seed=1):
    keys = jax.random.split(jax.random.PRNGKey(seed), 3)
    shapes = {"embedding": (256, WIDTH), "hidden": (CONTEXT * WIDTH, HIDDEN),
              "head": (HIDDEN, 256)}
    return {name: jax.random.normal(key, shape) / shape[0]**0.5
            for key, (name, shape) in zip(keys, shapes.items())}


def loss_of(parameters, windows):
    inputs = parameters["embedding"][windows[:, :-1]]
    hidden = jnp.tanh(inputs.reshape(len(windows), -1) @ parameters["hidden"])
    return optax.softmax_cross_entropy_with_integer_labels(
        hidden @ parameters["head"], windows[:, -1]).mean()


def train(args):
    with open(args.data, "rb") as file:
        text = np.frombuffer(file.read(), np.uint8).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)
    training, validation = windows[:-2000], windows[-2000:]
    exchanged = {name: np.array(value) for name, value in init().items()}
    with contextlib.closing(
            Island(args.library, args.coordinator, args.island, exchanged,
                   args.tls)) as island:
        train_on(island, exchanged, training, validation)


def train_on(island, exchanged, training, validation):
    run = island.run
    optimizer = optax.adamw(3e-3)
    parameters = jax.tree.map(jnp.array, exchanged)
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state, batch):
        loss, gradient = jax.value_and_grad(loss_of)(parameters, batch)
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    print(f"validation loss {loss_of(parameters, validation):.6f}", flush=True)
    while not island.step.finished:
        chance = np.random.default_rng(
            (island.step.step, run.shard, island.data_order))
        # Shards are disjoint.
        chosen = chance.integers(len(training) // run.shards, size=64)
        batch = training[chosen * run.shards + run.shard]
        parameters, state, loss = step(parameters, state, batch)
        for name, array in exchanged.items():
            np.copyto(array, parameters[name])
        island.after_step(len(batch), float(loss))
        parameters = jax.tree.map(jnp.array, exchanged)
    print(f"validation loss {loss_of(parameters, validation):.6f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--create", help="write a run's files there, and end")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--data", help="a text")
    parser.add_argument("--coordinator", default="127.0.0.1:7070")
    parser.add_argument("--island", default="east")
    parser.add_argument("--tls", help="the island's folder with certificates")
    parser.add_argument("--library", default=os.environ.get(
        "CAUSEWAY_LIBRARY", "libcauseway.so"))
    args = parser.parse_args()
    if args.create is None:
        return train(args)
    import causeway
    causeway.create_run(init(), args.create, name="text",
                        total_steps=args.steps, batch_size=64,
                        sequence_length=1, inner_steps_per_round=20,
                        overlap_steps=2, min_islands=2)


if __name__ == "__main__":
    main()
