"""The search benchmark's problems and simulations: their optima, the same seed twice, N epochs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import search, search_problems, search_report
from benchmarks.search_problems import branin, conditional, curve_of, get, hartmann6

MINIMA = [
    (branin, {"x0": math.pi, "x1": 2.275}, "branin"),
    (
        hartmann6,
        dict(
            zip(
                [f"x{i}" for i in range(6)],
                (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),
                strict=True,
            )
        ),
        "hartmann6",
    ),
    (conditional, {"branch": "narrow", "eps": 1e-4, "beta": 0.9}, "conditional"),
    (search_problems.rosenbrock, {"x0": 1.0, "x1": 1.0, "kind": "a"}, "rosenbrock"),
    (search_problems.ackley, {f"x{i}": 0.0 for i in range(5)}, "ackley_noisy"),
    (
        search_problems.mixed,
        {"act": "relu", "norm": "bn", "width": 128, "layers": 4, "lr": 10**-2.5},
        "mixed",
    ),
]


@pytest.mark.parametrize(("f", "at", "name"), MINIMA)
def test_known_optima(f: object, at: dict[str, object], name: str) -> None:
    assert f(at) == pytest.approx(get(name).best, abs=1e-4)  # type: ignore[operator]


def test_a_recorded_training_is_its_own_surrogate() -> None:
    """At a row of the table the curve is that row's, nearly."""
    row = {
        "lr": 0.252547,
        "batch_size": 256,
        "layers": 2,
        "width": 32,
        "optimizer": "sgd",
        "momentum": 0.555096,
        "dropout": 0.211267,
    }
    curve = curve_of("digits", row, None)
    assert len(curve) == 27
    assert (curve[0], curve[-1]) == pytest.approx((1 - 0.5467, 1 - 0.9767), abs=0.01)


def test_samplers_are_simulated_the_same_twice() -> None:
    problem = get("branin")
    rows = [search.run_sampler(problem, "tpe-alone", 4, 16, seed) for seed in (0, 0, 1)]
    assert rows[0]["regret"] == rows[1]["regret"] != rows[2]["regret"]
    assert float(rows[0]["regret"]) > 0


@pytest.mark.parametrize("pruner", ["none", "asha", "promotion"])
def test_pruners_are_simulated(pruner: str) -> None:
    """Without one every epoch is spent; the others spend less, and choose a complete trial."""
    row = search.run_pruner(get("digits"), pruner, 5, 20, 0)
    assert 0 < float(row["error"]) < 0.2
    assert (row["epochs"] == 20 * 27) == (pruner == "none")
    assert int(row["epochs"]) >= 27


def test_a_problem_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "SPACE = {'x': {'type': 'float', 'low': 0, 'high': 1}}\n"
        "def evaluate(params): return (params['x'] - 0.5) ** 2\n"
    )
    output = tmp_path / "rows.csv"
    assert (
        search.main(
            [
                "samplers",
                "--problem",
                str(path),
                "--only",
                "random",
                "--seeds",
                "2",
                "--trials",
                "8",
                "--width",
                "2",
                "--output",
                str(output),
            ]
        )
        == 0
    )
    rows = output.read_text().splitlines()
    assert len(rows) == 3 and rows[1].startswith("mine,random,2,8,0,")


def rows_of(width: int, regrets: dict[str, list[float]], trials: int = 60) -> list[dict[str, str]]:
    return [
        {
            "problem": "branin",
            "sampler": sampler,
            "width": str(width),
            "trials": str(trials),
            "seed": str(seed),
            "regret": str(regret),
        }
        for sampler, found in regrets.items()
        for seed, regret in enumerate(found)
    ]


def test_studies_of_one_size_are_in_one_table() -> None:
    rows = rows_of(20, {"random": [4.0, 2.0]}) + rows_of(20, {"random": [9.0]}, trials=100)
    assert search_report.sizes([*rows_of(100, {"tpe-alone": [1.0]}), *rows]) == [
        ("20", "60"),
        ("20", "100"),
        ("100", "60"),
    ]
    assert search_report.table(rows, "sampler", "regret", ("20", "60"))[0].startswith(
        "| regret, width 20, 60 trials | random |"
    )
    assert (
        search_report.table(rows, "sampler", "regret", ("20", "60"))[2] == "| branin | **3** | 2 |"
    )


def test_ranks() -> None:
    """Ties share theirs; a sampler that has run too little takes no part."""
    rows = rows_of(
        20,
        {
            "random": [3.0, 3.0, 2.0],
            "tpe-alone": [1.0, 3.0, 2.0],
            "gp": [0.5, 1.0, 1.0],
            "qmc": [9.0],
        },
    )
    head, _, line = search_report.ranks(rows, ("20", "60"))
    assert head == "| mean rank, width 20, 60 trials | random | tpe-alone | gp |"
    assert line.startswith("| branin 3 | 2.67 (2.50 to 3.00) | 2.33 (2.00 to 2.50) | 1.00 (1.00 ")
    assert "no problem" in search_report.ranks(rows, ("1", "60"))[0]


@pytest.mark.parametrize(("width", "expected"), [(20, "tpe-multivariate"), (100, "tpe-alone")])
def test_auto_is_one_of_the_others(width: int, expected: str) -> None:
    """With conditions it is TPE; of its two forms that which sweep takes with so many at once."""
    assert search.resolved(search_problems.get("conditional"), 60, width) == expected
