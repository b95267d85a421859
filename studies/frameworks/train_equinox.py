"""Equinox and Optax, saved by Orbax; three lines, marked `sweep`, are what it needs for sweep."""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sweep.integrations.orbax import Epochs  # sweep


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

    model = eqx.nn.MLP(8, 1, args.hidden, depth=1, key=jax.random.PRNGKey(args.seed))
    # Orbax saves arrays; what else a model holds (its activation) stays here.
    arrays, others = eqx.partition(model, eqx.is_array)
    optimizer = optax.adam(args.lr)
    (x, y), valid = make_data(0, 512), make_data(1, 256)

    def loss_of(arrays, x, y):
        return jnp.mean((jax.vmap(eqx.combine(arrays, others))(x) - y) ** 2)

    @jax.jit
    def step(state):
        gradients = jax.grad(loss_of)(state["arrays"], x, y)
        updates, moments = optimizer.update(gradients, state["moments"])
        return {"arrays": eqx.apply_updates(state["arrays"], updates), "moments": moments}

    start = {"arrays": arrays, "moments": optimizer.init(arrays)}
    for _, state in (epochs := Epochs(args.epochs, start)):  # sweep
        for _ in range(20):
            state = step(state)
        epochs.report(state, val_loss=loss_of(state["arrays"], *valid))  # sweep


if __name__ == "__main__":
    main()
