"""Record real trainings as tables for ``benchmarks.search``: learning curves of random settings.

    python -m benchmarks.search_tables digits 256
    python -m benchmarks.search_tables mnist 256 --device cuda --jobs 12

Each row of ``benchmarks/search_tables/NAME.csv`` is one training of the reference trainer: its
settings, and the validation accuracy after each epoch. Rows that are there stay; others are added.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import sys
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("search_tables")
EPOCHS = 27
# Of MNIST a tenth, so that what is chosen makes a difference.
FIXED: dict[str, dict[str, Any]] = {"digits": {}, "mnist": {"model": "cnn", "train_fraction": 0.1}}
NAMES = ("lr", "batch_size", "layers", "width", "optimizer", "momentum", "dropout")


def draw(number: int) -> dict[str, Any]:
    """Return the settings of a row: a Sobol' sequence's point, so that the table is even."""
    from scipy.stats import qmc

    engine = qmc.Sobol(len(NAMES), scramble=True, seed=0)
    unit = dict(zip(NAMES, engine.random_base2(9)[number].tolist(), strict=True))
    found: dict[str, Any] = {
        "lr": 10 ** (-4 + 4 * unit["lr"]),
        "batch_size": int(2 ** round(4 + 4 * unit["batch_size"])),
        "layers": 1 + min(3, int(4 * unit["layers"])),
        "width": int(2 ** round(4 + 4 * unit["width"])),
        "optimizer": "sgd" if unit["optimizer"] < 0.5 else "adamw",
        "dropout": round(0.5 * unit["dropout"], 6),
    }
    found["momentum"] = round(0.99 * unit["momentum"], 6) if found["optimizer"] == "sgd" else ""
    return found


class Curve:
    """Stands for the reporter: keeps what training reports."""

    resume = checkpoint_dir = None

    def __init__(self) -> None:
        self.accuracy: list[float] = []

    def log(self, step: int | None = None, metrics: Any = None, **more: float) -> None:
        self.accuracy.append(float({**(metrics or {}), **more}["val_accuracy"]))

    def should_stop(self) -> None:
        return None


def train(data: str, device: str, number: int) -> list[str]:
    """Return a row: the settings, then the accuracy after each epoch, NaN after a divergence."""
    from trainer.config import Options
    from trainer.loop import train as run

    settings = draw(number)
    given = {name: value for name, value in settings.items() if value != ""}
    options = Options(
        data=data, epochs=EPOCHS, seed=number, device=device, threads=1, **FIXED[data], **given
    )
    curve = Curve()
    run(options, curve, lambda _: None)  # type: ignore[arg-type]
    accuracy = curve.accuracy + [math.nan] * (EPOCHS - len(curve.accuracy))
    shown = (f"{v:.6g}" if isinstance(v, float) else str(v) for v in map(settings.get, NAMES))
    return [*shown, *(f"{value:.4f}" for value in accuracy)]


def main(arguments: list[str]) -> int:
    """Add rows until the table has as many as asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(chr(10))[0])
    parser.add_argument("data", choices=sorted(FIXED))
    parser.add_argument("count", type=int, help="rows that the table shall have; at most 512")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    given = parser.parse_args(arguments)
    path = FOLDER / f"{given.data}.csv"
    path.parent.mkdir(exist_ok=True)
    have = len(path.read_text().splitlines()) - 1 if path.exists() else -1
    context = multiprocessing.get_context("spawn")  # CUDA does not outlive a fork
    with path.open("a", newline="", encoding="utf-8") as stream, context.Pool(given.jobs) as pool:
        writer = csv.writer(stream, lineterminator="\n")
        if have < 0:
            writer.writerow([*NAMES, *(f"epoch_{n}" for n in range(1, EPOCHS + 1))])
        one = partial(train, given.data, given.device)
        for done, row in enumerate(pool.imap(one, range(max(have, 0), given.count)), 1):
            writer.writerow(row)
            stream.flush()
            print(f"{max(have, 0) + done} of {given.count}", end="\r", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
