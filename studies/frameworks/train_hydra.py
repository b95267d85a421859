"""A Hydra app; sweep hands it overrides, and a folder of its own for what it writes."""

import os

import hydra
import numpy as np

from sweep.report import Reporter


@hydra.main(version_base=None, config_path="hydra_conf", config_name="config")
def main(config):
    generator = np.random.default_rng(config.seed)
    x = np.random.default_rng(0).normal(size=(512, 8))
    y = np.tanh(x @ np.arange(8))

    r = Reporter()
    weights, start = generator.normal(size=8), 0
    if r.resume:
        saved = np.load(r.resume)
        weights, start = saved["weights"], int(saved["epoch"]) + 1
    for epoch in range(start, config.epochs):
        error = np.tanh(x @ weights) - y
        gradient = x.T @ (error * (1 - np.tanh(x @ weights) ** 2)) / len(x)
        weights -= config.optimizer.lr * (gradient + config.optimizer.decay * weights)
        r.log(step=epoch, loss=float((error**2).mean()))
        if r.checkpoint_dir:
            path = os.path.join(r.checkpoint_dir, "last.npz")
            np.savez(path + ".part.npz", weights=weights, epoch=epoch)
            os.replace(path + ".part.npz", path)
        if r.should_stop():
            break
    else:
        r.done()


if __name__ == "__main__":
    main()
