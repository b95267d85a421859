"""Boosted trees with LightGBM; three lines, marked `sweep`, are what it needs for sweep."""

import argparse

import lightgbm as lgb
import numpy as np

from sweep.integrations.lightgbm import SweepCallback  # sweep


def make_data(seed, size):
    x = np.random.default_rng(seed).normal(size=(size, 8))
    return lgb.Dataset(x, np.sin(x).sum(axis=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--max_depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    params = {"learning_rate": args.learning_rate, "max_depth": args.max_depth, "seed": args.seed}
    lgb.train(
        {**params, "objective": "l2", "num_threads": 1, "verbose": -1},
        make_data(0, 500),
        args.rounds,
        valid_sets=[make_data(1, 250)],
        callbacks=[SweepCallback(args.rounds)],  # sweep
        init_model=SweepCallback.resume(),  # sweep
    )


if __name__ == "__main__":
    main()
