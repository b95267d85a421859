"""A small training to begin with: fits a curve in under a second. Replace it by your own.

What sweep needs of a training is marked with (1) to (4); everything else is ordinary. Standard
library only, and it runs alone, too: python train.py --lr 0.1
"""

import argparse
import json
import math
import os
import random

from sweep.report import Reporter

POINTS = 60


def read_flags():
    # (1) The values of this trial come as flags: study.yaml says `python train.py {params} …`.
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--hidden", type=int, default=4, help="units of the hidden layer")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_data(rng, count):
    points = [rng.uniform(-2.0, 2.0) for _ in range(count)]
    return [(x, math.sin(2.0 * x) + rng.gauss(0.0, 0.05)) for x in points]


def predict(weights, x):
    hidden = [math.tanh(w * x + b) for w, b in zip(weights["w"], weights["b"])]
    return hidden, sum(v * h for v, h in zip(weights["v"], hidden))


def train_one_epoch(weights, speed, data, lr, momentum):
    for x, y in data:
        hidden, out = predict(weights, x)
        error = max(-10.0, min(10.0, out - y))
        for i, h in enumerate(hidden):
            inner = error * weights["v"][i] * (1.0 - h * h)
            for name, slope in (("v", error * h), ("w", inner * x), ("b", inner)):
                speed[name][i] = momentum * speed[name][i] - lr * slope
                weights[name][i] += speed[name][i]


def measure_loss(weights, data):
    return sum((predict(weights, x)[1] - y) ** 2 for x, y in data) / len(data)


def save(path, state):
    # First beside it, then in its place: a training that is ended here leaves a whole file. What
    # ends in .tmp is not taken for a checkpoint.
    with open(path + ".tmp", "w") as stream:
        json.dump(state, stream)
    os.replace(path + ".tmp", path)


def main():
    flags = read_flags()
    reporter = Reporter()
    rng = random.Random(flags.seed)
    data = random.Random(1)  # the same data for all trials
    training, validation = make_data(data, POINTS), make_data(data, POINTS)
    weights = {name: [rng.gauss(0.0, 1.0) for _ in range(flags.hidden)] for name in "wbv"}
    speed = {name: [0.0] * flags.hidden for name in "wbv"}
    first = 0
    # (2) After an interruption the same trial goes on from its checkpoint.
    if reporter.resume:
        with open(reporter.resume) as stream:
            state = json.load(stream)
        first, weights, speed = state["epoch"] + 1, state["weights"], state["speed"]
    for epoch in range(first, flags.epochs):
        # The order depends on the seed and the epoch alone, so that a resumed trial has the same.
        shuffled = random.Random(f"{flags.seed} {epoch}").sample(training, len(training))
        train_one_epoch(weights, speed, shuffled, flags.lr, flags.momentum)
        loss = measure_loss(weights, validation)
        print(f"epoch {epoch}: val_loss={loss:.5f}", flush=True)
        if reporter.checkpoint_dir:
            state = {"epoch": epoch, "weights": weights, "speed": speed}
            save(os.path.join(reporter.checkpoint_dir, "last.json"), state)
        # (3) Tell the metric of each step; (4) leave when asked to.
        reporter.log(step=epoch, val_loss=loss)
        if reporter.should_stop():
            break


if __name__ == "__main__":
    main()
