"""Least squares over MPI ranks with mpi4py, which sweep.report asks for the rank."""

import argparse
import os

import numpy as np
from mpi4py import MPI

from sweep.report import Reporter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(512, 8))
    y = x @ generator.normal(size=8)
    x, y = x[rank::size], y[rank::size]

    r = Reporter()
    weights, start = np.random.default_rng(args.seed).normal(size=8), 0
    if r.resume:
        saved = np.load(r.resume)
        weights, start = saved["weights"], int(saved["epoch"]) + 1
    for epoch in range(start, args.epochs):
        gradient = world.allreduce(x.T @ (x @ weights - y)) / 512
        weights -= args.lr * (gradient + args.decay * weights)
        loss = world.allreduce(float(((x @ weights - y) ** 2).sum())) / 512
        r.log(step=epoch, loss=loss)
        if r.checkpoint_dir and rank == 0:
            path = os.path.join(r.checkpoint_dir, "last.npz")
            np.savez(path + ".part.npz", weights=weights, epoch=epoch)
            os.replace(path + ".part.npz", path)
        if r.should_stop(all_ranks=True):
            break
    else:
        r.done()


if __name__ == "__main__":
    main()
