"""Flax over several processes that mpirun starts, each with its share of the data.

Three lines, marked `sweep`, are what it needs for sweep. The parameters lie on all devices, the
data are parted among them; jax.distributed asks mpi4py who a process is.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sweep.integrations.orbax import Epochs  # sweep


class Model(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(self.hidden)(x)))


def make_data(seed, size, share):
    x = np.random.default_rng(seed).normal(size=(size, 8)).astype(np.float32)
    mine = x[jax.process_index() :: jax.process_count()]
    targets = np.sin(mine).sum(axis=1, keepdims=True)
    return [jax.make_array_from_process_local_data(share, part) for part in (mine, targets)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    jax.distributed.initialize(cluster_detection_method="mpi4py")
    mesh = Mesh(jax.devices(), ("data",))
    everywhere, share = (NamedSharding(mesh, PartitionSpec(*one)) for one in ((), ("data",)))
    model, optimizer = Model(args.hidden), optax.adam(args.lr)
    train, valid = make_data(0, 512, share), make_data(1, 256, share)

    @jax.jit
    def loss_of(params, x, y):
        return jnp.mean((model.apply(params, x) - y) ** 2)

    @jax.jit
    def step(state, x, y):
        gradients = jax.grad(loss_of)(state["params"], x, y)
        updates, moments = optimizer.update(gradients, state["moments"])
        return {"params": optax.apply_updates(state["params"], updates), "moments": moments}

    def begin():
        params = model.init(jax.random.PRNGKey(args.seed), jnp.zeros((1, 8)))
        return {"params": params, "moments": optimizer.init(params)}

    start = jax.jit(begin, out_shardings=everywhere)()
    for _, state in (epochs := Epochs(args.epochs, start)):  # sweep
        for _ in range(20):
            state = step(state, *train)
        epochs.report(state, val_loss=loss_of(state["params"], *valid))  # sweep


if __name__ == "__main__":
    main()
