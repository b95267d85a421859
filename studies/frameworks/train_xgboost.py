"""Boosted trees with XGBoost; three lines, marked `sweep`, are what it needs for sweep."""

import argparse

import numpy as np
import xgboost as xgb

from sweep.integrations.xgboost import SweepCallback  # sweep


def make_data(seed, size):
    x = np.random.default_rng(seed).normal(size=(size, 8))
    return xgb.DMatrix(x, np.sin(x).sum(axis=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--max_depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    params = {"eta": args.learning_rate, "max_depth": args.max_depth, "seed": args.seed}
    xgb.train(
        {**params, "nthread": 1},
        make_data(0, 500),
        args.rounds,
        evals=[(make_data(1, 250), "valid")],
        verbose_eval=False,
        callbacks=[SweepCallback(args.rounds)],  # sweep
        xgb_model=SweepCallback.resume(),  # sweep
    )


if __name__ == "__main__":
    main()
