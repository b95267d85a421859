"""A Keras 3 training (here with torch behind); two lines, marked `sweep`, are for sweep."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np

from sweep.integrations.keras import SweepCallback  # sweep


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--units", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    keras.utils.set_random_seed(args.seed)
    x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
    y = np.sin(x).sum(axis=1, keepdims=True)
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(args.units, "relu"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(args.lr), "mse")
    model.fit(
        x,
        y,
        epochs=args.epochs,
        validation_split=0.25,
        verbose=0,
        callbacks=[SweepCallback()],  # sweep
    )


if __name__ == "__main__":
    main()
