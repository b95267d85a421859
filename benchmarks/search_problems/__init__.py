"""Problems for ``benchmarks.search``: a space, what to minimise, and what is the least.

Half of them were kept out while ``sampler: auto`` was designed (``HELD_OUT``).
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sweep.core.space import Parameter, Space

TABLES = Path(__file__).parents[1] / "search_tables"


@dataclass(frozen=True)
class Problem:
    """Something to minimise.

    Attributes:
        evaluate: From parameters and a source of noise to the curve of a training, one value an
            epoch; one value where there are no epochs.
        best: The least value that can be had, without noise.
        true: The value without noise, of parameters; the curve's last where None.
    """

    name: str
    space: Space
    evaluate: Callable[[Mapping[str, Any], random.Random], Sequence[float]]
    best: float = 0.0
    true: Callable[[Mapping[str, Any]], float] | None = None


def floats(count: int, low: float, high: float) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"x{i}", "float", low=low, high=high) for i in range(count))


def branin(p: Mapping[str, Any]) -> float:
    """Branin's function; least 0.397887."""
    x, y = p["x0"], p["x1"]
    bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return float(bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


_ALPHA = (1.0, 1.2, 3.0, 3.2)
_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_P = (
    (1312, 1696, 5569, 124, 8283, 5886),
    (2329, 4135, 8307, 3736, 1004, 9991),
    (2348, 1451, 3522, 2883, 3047, 6650),
    (4047, 8828, 8732, 5743, 1091, 381),
)


def hartmann6(p: Mapping[str, Any]) -> float:
    """Hartmann's function of six variables; least -3.32237."""
    x = [p[f"x{i}"] for i in range(6)]
    return -sum(
        alpha * math.exp(-sum(a * (v - q / 1e4) ** 2 for a, v, q in zip(ra, x, rp, strict=True)))
        for alpha, ra, rp in zip(_ALPHA, _A, _P, strict=True)
    )


def rosenbrock(p: Mapping[str, Any]) -> float:
    """Rosenbrock's function, moved by a category of which one alone reaches 0."""
    move = {"a": 0.0, "b": 5.0, "c": 20.0, "d": 80.0}[p["kind"]]
    return float(100 * (p["x1"] - p["x0"] ** 2) ** 2 + (1 - p["x0"]) ** 2 + move)


def conditional(p: Mapping[str, Any]) -> float:
    """Two branches with parameters of their own; the one with the least, 0, is the narrower."""
    if p["branch"] == "wide":
        return float(0.2 + (math.log10(p["lr"]) + 2) ** 2 / 8 + (p["momentum"] - 0.5) ** 2)
    return float(2 * (math.log10(p["eps"]) + 4) ** 2 + 4 * (p["beta"] - 0.9) ** 2)


def ackley(p: Mapping[str, Any]) -> float:
    """Ackley's function of five variables; least 0."""
    x = [p[f"x{i}"] for i in range(5)]
    root = math.sqrt(sum(v * v for v in x) / 5)
    waves = sum(math.cos(2 * math.pi * v) for v in x) / 5
    return -20 * math.exp(-0.2 * root) - math.exp(waves) + 20 + math.e


def mixed(p: Mapping[str, Any]) -> float:
    """Whole numbers, a logarithm and two categories that act together; least 0."""
    fit = {("relu", "bn"): 0.0, ("relu", "no"): 0.3, ("tanh", "bn"): 0.5, ("tanh", "no"): 0.1}
    wide = (math.log2(p["width"]) - 7) ** 2 / 20 + (p["layers"] - 4) ** 2 / 30
    return float(fit[p["act"], p["norm"]] + wide + (math.log10(p["lr"]) + 2.5) ** 2 / 6)


def _plain(
    name: str, space: Space, f: Callable[[Mapping[str, Any]], float], best: float, noise: float = 0
) -> Problem:
    def evaluate(p: Mapping[str, Any], chance: random.Random) -> Sequence[float]:
        return [f(p) + (chance.gauss(0, noise) if noise else 0.0)]

    return Problem(name, space, evaluate, best, f)


HPO_SPACE = Space(
    (
        Parameter("lr", "float", low=1e-4, high=1.0, log=True),
        Parameter("batch_size", "categorical", choices=(16, 32, 64, 128, 256)),
        Parameter("layers", "int", low=1, high=4),
        Parameter("width", "int", low=16, high=256, log=True),
        Parameter("optimizer", "categorical", choices=("sgd", "adamw")),
        Parameter("momentum", "float", low=0.0, high=0.99, when={"optimizer": ("sgd",)}),
        Parameter("dropout", "float", low=0.0, high=0.5),
    )
)


def _place(p: Mapping[str, Any]) -> tuple[float, ...]:
    momentum = p.get("momentum")
    return (
        (math.log10(float(p["lr"])) + 4) / 4 * 3,  # what matters most counts most
        (math.log2(float(p["batch_size"])) - 4) / 4,
        (float(p["layers"]) - 1) / 3,
        (math.log2(float(p["width"])) - 4) / 4,
        0.0 if p["optimizer"] == "sgd" else 1.0,
        float(momentum) if momentum not in (None, "") else 0.5,
        float(p["dropout"]),
    )


@cache
def _table(name: str) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return (place, error after each epoch) of the recorded trainings that stayed finite."""
    with (TABLES / f"{name}.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = []
    for row in rows:
        curve = tuple(1 - float(v) for key, v in row.items() if key.startswith("epoch_"))
        curve = tuple(0.9 if math.isnan(v) else v for v in curve)
        found.append((_place(row), curve))
    return found


def curve_of(name: str, p: Mapping[str, Any], chance: random.Random | None) -> list[float]:
    """Return a learning curve: the mean of the four nearest recorded trainings, by distance.

    With a source of noise each epoch differs by about what two seeds of the trainer do.
    """
    here = _place(p)
    near = sorted(
        ((math.dist(here, place) + 1e-3, curve) for place, curve in _table(name)),
        key=lambda pair: pair[0],
    )[:4]
    whole = sum(1 / distance**2 for distance, _ in near)
    found = [
        sum(curve[epoch] / distance**2 for distance, curve in near) / whole
        for epoch in range(len(near[0][1]))
    ]
    if chance is None:
        return found
    common = chance.gauss(0, 0.003)
    return [max(0.0, v + common + chance.gauss(0, 0.003)) for v in found]


LEAST_ROWS = 16  # of a table; fewer recorded trainings make no surrogate


def is_recorded(name: str) -> bool:
    """Tell whether a problem can be had: one of recorded trainings needs its table."""
    path = TABLES / f"{name}.csv"
    if name not in ("digits", "mnist"):
        return True
    return path.exists() and len(path.read_text().splitlines()) > LEAST_ROWS


def _trained(name: str) -> Problem:
    if not is_recorded(name):
        raise SystemExit(f"{name} has no table yet: python -m benchmarks.search_tables {name} 60")
    return Problem(
        name,
        HPO_SPACE,
        lambda p, chance: curve_of(name, p, chance),
        min(curve[-1] for _, curve in _table(name)),
        lambda p: curve_of(name, p, None)[-1],
    )


BRANIN_SPACE = Space(
    (Parameter("x0", "float", low=-5, high=10), Parameter("x1", "float", low=0, high=15))
)
ROSENBROCK_SPACE = Space(
    (*floats(2, -2, 2), Parameter("kind", "categorical", choices=("a", "b", "c", "d")))
)
CONDITIONAL_SPACE = Space(
    (
        Parameter("branch", "categorical", choices=("wide", "narrow")),
        Parameter("lr", "float", low=1e-5, high=1, log=True, when={"branch": ("wide",)}),
        Parameter("momentum", "float", low=0, high=1, when={"branch": ("wide",)}),
        Parameter("eps", "float", low=1e-8, high=1, log=True, when={"branch": ("narrow",)}),
        Parameter("beta", "float", low=0, high=1, when={"branch": ("narrow",)}),
    )
)
MIXED_SPACE = Space(
    (
        Parameter("act", "categorical", choices=("relu", "tanh")),
        Parameter("norm", "categorical", choices=("bn", "no")),
        Parameter("width", "int", low=8, high=1024, log=True),
        Parameter("layers", "int", low=1, high=8),
        Parameter("lr", "float", low=1e-5, high=1, log=True),
    )
)

DESIGNED_ON = ("branin", "rosenbrock", "conditional", "digits")
HELD_OUT = ("hartmann6", "ackley_noisy", "mixed", "mnist")


@cache
def get(name: str) -> Problem:
    """Return a problem by name. Raises: KeyError: There is none."""
    if name in ("digits", "mnist"):
        return _trained(name)
    return {
        "branin": _plain("branin", BRANIN_SPACE, branin, 0.397887),
        "rosenbrock": _plain("rosenbrock", ROSENBROCK_SPACE, rosenbrock, 0.0),
        "conditional": _plain("conditional", CONDITIONAL_SPACE, conditional, 0.0),
        "hartmann6": _plain("hartmann6", Space(floats(6, 0, 1)), hartmann6, -3.32237),
        "ackley_noisy": _plain("ackley_noisy", Space(floats(5, -8, 12)), ackley, 0.0, noise=0.5),
        "mixed": _plain("mixed", MIXED_SPACE, mixed, 0.0),
    }[name]


def read(path: Path) -> Problem:
    """Return the problem of a Python file.

    It has ``SPACE`` (as in a study file) and ``evaluate(params)``, to be minimised; ``BEST`` where
    the least value is known.

    Raises:
        SystemExit: It has not.
    """
    from sweep.studyfile import loads

    spec = importlib.util.spec_from_file_location("problem", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("SPACE", "evaluate"):
        if not hasattr(module, name):
            raise SystemExit(f"{path} has no {name}")
    text = json.dumps(
        {
            "name": path.stem,
            "command": "true",
            "trials": 1,
            "space": module.SPACE,
            "objective": {"metric": "value", "direction": "minimize"},
        }
    )
    space = loads(text, str(path)).space
    return Problem(
        path.stem,
        space,
        lambda p, _: [float(module.evaluate(dict(p)))],
        float(getattr(module, "BEST", 0.0)),
    )
