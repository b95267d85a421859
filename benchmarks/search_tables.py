"""Record real trainings as tables for ``benchmarks.search``: learning curves of random settings.

    python -m benchmarks.search_tables digits 200
    python -m benchmarks.search_tables mnist 60

Each row of ``benchmarks/search_tables/NAME.csv`` is one training of the reference trainer: its
settings, and the validation accuracy after each epoch. Rows that are there stay; others are added.
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("search_tables")
EPOCHS = {"digits": 27, "mnist": 9}
# Of MNIST a part, by an MLP: a CPU trains it in seconds.
FIXED: dict[str, dict[str, Any]] = {
    "digits": {},
    "mnist": {"model": "mlp", "train_fraction": 0.1, "augment": "none"},
}
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


def train(data: str, settings: dict[str, Any], number: int) -> list[float]:
    """Return the validation accuracy after each epoch, NaN after a divergence."""
    from trainer.config import Options
    from trainer.loop import train as run

    given = {name: value for name, value in settings.items() if value != ""}
    options = Options(
        data=data, epochs=EPOCHS[data], seed=number, device="cpu", threads=1, **FIXED[data], **given
    )
    curve = Curve()
    run(options, curve, lambda _: None)  # type: ignore[arg-type]
    return curve.accuracy + [math.nan] * (EPOCHS[data] - len(curve.accuracy))


def main(arguments: list[str]) -> int:
    """Add rows until the table has as many as asked for."""
    data, count = arguments[0], int(arguments[1])
    path = FOLDER / f"{data}.csv"
    path.parent.mkdir(exist_ok=True)
    epochs = [f"epoch_{n}" for n in range(1, EPOCHS[data] + 1)]
    have = len(path.read_text().splitlines()) - 1 if path.exists() else -1
    with path.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if have < 0:
            writer.writerow([*NAMES, *epochs])
        for number in range(max(have, 0), count):
            settings = draw(number)
            curve = train(data, settings, number)
            shown = [f"{value:.6g}" if isinstance(value, float) else value
                     for value in settings.values()]  # fmt: skip
            by_name = dict(zip(settings, shown, strict=True))
            writer.writerow([*(by_name[name] for name in NAMES), *(f"{a:.4f}" for a in curve)])
            stream.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
