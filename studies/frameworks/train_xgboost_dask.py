"""Boosted trees with XGBoost over Dask's workers; three lines, marked `sweep`, are for sweep."""

import argparse

import dask.array as da
from dask.distributed import Client, LocalCluster
from xgboost import dask as dxgb

from sweep.integrations.xgboost import SweepCallback  # sweep


def make_data(client, seed, size, workers):
    x = da.random.RandomState(seed).normal(size=(size, 8), chunks=(size // workers, 8)).persist()
    return dxgb.DaskDMatrix(client, x, da.sin(x).sum(axis=1).persist())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--max_depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    params = {"eta": args.learning_rate, "max_depth": args.max_depth, "seed": args.seed}
    with (
        LocalCluster(args.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        dxgb.train(
            client,
            {**params, "nthread": 1},
            make_data(client, 0, 500, args.workers),
            args.rounds,
            evals=[(make_data(client, 1, 250, args.workers), "valid")],
            verbose_eval=False,
            callbacks=[SweepCallback(args.rounds)],  # sweep
            xgb_model=SweepCallback.resume(),  # sweep
        )


if __name__ == "__main__":
    main()
