"""A script that knows nothing of sweep: a small network learns two interleaved spirals of points.

Plain argparse flags in, plain lines out (``epoch 3 val_acc=0.9312``); NumPy only, about a second.
"""

import argparse
import itertools

import numpy as np


def make_spirals(count, rng):
    """Return points (count, 2) on two noisy spiral arms, and which arm each lies on (0 or 1)."""
    labels = rng.integers(0, 2, count)
    angle = 2.5 * np.pi * np.sqrt(rng.random(count)) + 0.5
    turned = angle + np.pi * labels
    points = np.stack([angle * np.cos(turned), angle * np.sin(turned)], axis=1) / 4
    return points + rng.normal(0, 0.15, points.shape), labels


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.03, help="learning rate of Adam")
    parser.add_argument("--hidden", type=int, default=32, help="units of each hidden layer")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training points")
    parser.add_argument("--activation", choices=["relu", "tanh"], default="relu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.lr <= 0 or args.hidden < 1 or args.epochs < 1:
        parser.error("--lr must be > 0, --hidden and --epochs at least 1")

    rng = np.random.default_rng(args.seed)
    points, labels = make_spirals(1500, np.random.default_rng(1234))  # the same data every time
    train_x, val_x = points[:1000], points[1000:]
    train_y, val_y = labels[:1000], labels[1000:]

    sizes = [2, args.hidden, args.hidden, 2]
    weights = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        weights += [rng.normal(0, (2 / fan_in) ** 0.5, (fan_in, fan_out)), np.zeros(fan_out)]
    first = [np.zeros_like(w) for w in weights]
    second = [np.zeros_like(w) for w in weights]

    if args.activation == "relu":
        activate, slope = lambda z: np.maximum(z, 0), lambda a: (a > 0).astype(float)
    else:
        activate, slope = np.tanh, lambda a: 1 - a * a

    def forward(x):
        values = [x]
        for layer in range(3):
            z = values[-1] @ weights[2 * layer] + weights[2 * layer + 1]
            values.append(activate(z) if layer < 2 else z)
        return values

    step = 0
    for epoch in range(1, args.epochs + 1):
        for index in rng.permutation(1000).reshape(-1, 25):
            values = forward(train_x[index])
            odds = np.exp(values[-1] - values[-1].max(axis=1, keepdims=True))
            delta = odds / odds.sum(axis=1, keepdims=True)
            delta[np.arange(25), train_y[index]] -= 1
            delta /= 25
            step += 1
            for layer in (2, 1, 0):
                slopes = [values[layer].T @ delta, delta.sum(axis=0)]
                if layer:
                    delta = (delta @ weights[2 * layer].T) * slope(values[layer])
                for at, gradient in zip((2 * layer, 2 * layer + 1), slopes):
                    first[at] = 0.9 * first[at] + 0.1 * gradient
                    second[at] = 0.999 * second[at] + 0.001 * gradient**2
                    ahead = first[at] / (1 - 0.9**step)
                    spread = np.sqrt(second[at] / (1 - 0.999**step))
                    weights[at] -= args.lr * ahead / (spread + 1e-8)
        accuracy = (forward(val_x)[-1].argmax(axis=1) == val_y).mean()
        print(f"epoch {epoch} val_acc={accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
