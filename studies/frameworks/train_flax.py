"""Flax and Optax, saved by Orbax; three lines, marked `sweep`, are what it needs for sweep."""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from sweep.integrations.orbax import Epochs  # sweep


class Model(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(self.hidden)(x)))


def make_data(seed, size):
    x = jax.random.normal(jax.random.PRNGKey(seed), (size, 8))
    return x, jnp.sin(x).sum(axis=1, keepdims=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    model, optimizer = Model(args.hidden), optax.adam(args.lr)
    (x, y), valid = make_data(0, 512), make_data(1, 256)

    def loss_of(params, x, y):
        return jnp.mean((model.apply(params, x) - y) ** 2)

    @jax.jit
    def step(state):
        gradients = jax.grad(loss_of)(state["params"], x, y)
        updates, moments = optimizer.update(gradients, state["moments"])
        return {"params": optax.apply_updates(state["params"], updates), "moments": moments}

    params = model.init(jax.random.PRNGKey(args.seed), x)
    start = {"params": params, "moments": optimizer.init(params)}
    for _, state in (epochs := Epochs(args.epochs, start)):  # sweep
        for _ in range(20):
            state = step(state)
        epochs.report(state, val_loss=loss_of(state["params"], *valid))  # sweep


if __name__ == "__main__":
    main()
