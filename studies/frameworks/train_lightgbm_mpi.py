"""LightGBM over several processes that mpirun starts, each with its share of the data.

Three lines, marked `sweep`, are what it needs for sweep. The processes meet by LightGBM's own
sockets; MPI tells each of them the addresses of all.
"""

import argparse
import socket

import lightgbm as lgb
import numpy as np
from mpi4py import MPI

from sweep.integrations.lightgbm import SweepCallback  # sweep


def make_data(seed, size, rank, count):
    x = np.random.default_rng(seed).normal(size=(size, 8))
    return lgb.Dataset(x[rank::count], np.sin(x).sum(axis=1)[rank::count])


def free_port():
    with socket.socket() as free:
        free.bind(("", 0))
        return free.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--max_depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    world = MPI.COMM_WORLD
    rank, count = world.Get_rank(), world.Get_size()
    port = free_port()
    network = {
        "machines": ",".join(
            world.allgather(f"{socket.gethostbyname(socket.gethostname())}:{port}")
        ),
        "local_listen_port": port,
        "num_machines": count,
        "tree_learner": "data",
        "pre_partition": True,
    }
    params = {"learning_rate": args.learning_rate, "max_depth": args.max_depth, "seed": args.seed}
    lgb.train(
        {**params, **network, "objective": "l2", "num_threads": 1, "verbose": -1},
        make_data(0, 500, rank, count),
        args.rounds,
        valid_sets=[make_data(1, 250, 0, 1)],
        callbacks=[SweepCallback(args.rounds)],  # sweep
        init_model=SweepCallback.resume(),  # sweep
    )


if __name__ == "__main__":
    main()
