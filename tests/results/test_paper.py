"""Tables for papers: which columns, how many digits, what is bold, and that LaTeX takes it."""

from __future__ import annotations

import dataclasses
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import InputError
from sweep.core.space import Parameter, Space
from sweep.core.study import Objective, Replicates
from sweep.results import exports, paper
from sweep.results.columns import columns
from tests.needs import require
from tests.study_rows import make_study

SPACE = Space(
    (
        Parameter("lr", "float", low=1e-5, high=1.0, log=True),
        Parameter("kind_of_%&", "categorical", choices=("a_b", "50% & $x^2$", "{[\\~#")),
    )
)
STUDY = make_study(SPACE)


def row(trial: int, value: float | None, **more: Any) -> dict[str, Any]:
    given = {
        "rank": trial + 1 if value is not None else None,
        "trial": trial,
        "state": "complete",
        "value": value,
        "params": {
            "lr": 10.0 ** -(trial + 2),
            "kind_of_%&": SPACE.get("kind_of_%&").choices[trial],
        },
        "metrics": {"loss": 1.5 / (trial + 1)},
        "seed": trial,
        "attempts": 1,
        "duration_s": 61.0,
        "gpu_hours": 0.0,
        "energy_j": None,
        "reason": "",
        "started": None,
        "ended": None,
    }
    return given | more


ROWS = [
    row(0, 0.91234567, confirmed={"mean": 0.90123, "low": 0.89, "high": 0.91, "seeds": 5}),
    row(1, 0.9, confirmed={"mean": 0.905, "low": None, "high": None, "seeds": 1}),
    row(2, 0.0456),
]


def shown(format: str, names: str, **more: Any) -> str:
    best = paper.best_cells(ROWS, STUDY, None)
    text = exports.export(ROWS, format, STUDY, names=names.split(","), best=best, **more)
    assert isinstance(text, str)
    return text


def test_markdown() -> None:
    """The columns that were asked for; results line up, the best and the best mean are bold."""
    assert shown("markdown", "rank,acc,mean,lr", digits=3) == (
        "| rank | acc | mean | lr |\n"
        "| ---: | ---: | ---: | ---: |\n"
        "| 1 | **0.912** | 0.901 ± 0.010 | 0.01 |\n"
        "| 2 | 0.900 | **0.905** | 0.001 |\n"
        "| 3 | 0.046 |  | 0.0001 |\n"
    )


def test_trials_of_several_trainings() -> None:
    """Their value is a mean: the deviation stands behind it, unless it has a column of its own."""
    study = dataclasses.replace(STUDY, replicates=Replicates(3, 3))
    sds = (0.0123, 0.0004, None)
    rows = [one | {"sd": sd, "replicates": 3} for one, sd in zip(ROWS, sds, strict=True)]
    best = paper.best_cells(rows, study, None)
    text = str(exports.export(rows, "markdown", study, digits=3, names=["trial", "acc"], best=best))
    assert text.splitlines()[2:] == [
        "| 0 | **0.912 ± 0.012** |",
        "| 1 | 0.900 ± 0.0004 |",
        "| 2 | 0.046 |",
    ]
    text = str(exports.export(rows, "latex", study, digits=3, names=["acc"], best=best))
    assert r"\textbf{0.912 $\pm$ 0.012} \\" in text.splitlines()
    text = str(
        exports.export(
            rows, "markdown", study, digits=3, names=["acc", "sd", "replicates"], best=best
        )
    )
    assert text.splitlines()[2] == "| **0.912** | 0.0123 | 3 |"


def test_each_of_several_objectives_has_its_deviation() -> None:
    """Behind each mean stands its own deviation; a metric is still called by its name alone."""
    objectives = (Objective("acc", "maximize"), Objective("ms", "minimize"))
    study = dataclasses.replace(STUDY, objectives=objectives, replicates=Replicates(2, 2))
    sds = {"acc": 0.0123, "ms": 0.5}
    several = row(0, None) | {"values": {"acc": 0.9, "ms": 20.0}, "sds": sds, "sd": sds["acc"]}
    names = ["trial", "acc", "ms"]
    text = str(exports.export([several], "markdown", study, digits=3, names=names))
    assert text.splitlines()[0] == "| trial | acc | ms |"
    assert text.splitlines()[2] == "| 0 | 0.900 ± 0.012 | 20.0 ± 0.5 |"
    lines = str(exports.export([several], "csv", study)).splitlines()
    cells = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert (cells["sds.acc"], cells["sds.ms"], cells["values.ms"]) == ("0.0123", "0.5", "20.0")
    heading = str(exports.export([several], "markdown", study)).splitlines()[0]
    assert "| acc | ms | sd | sds.acc | sds.ms |" in heading


def test_latex() -> None:
    """Everything that LaTeX would read otherwise is escaped, also in a heading."""
    lines = shown("latex", "acc,mean,kind_of_%&", digits=3).splitlines()
    assert lines[1] == r"\begin{tabular}{rrl}"
    assert lines[3] == r"acc & mean & kind\_of\_\%\& \\"
    assert lines[5] == r"\textbf{0.912} & 0.901 $\pm$ 0.010 & a\_b \\"
    assert lines[6] == r"0.900 & \textbf{0.905} & 50\% \& \$x\textasciicircum{}2\$ \\"


def test_programs_get_plain_columns() -> None:
    """In CSV and JSON the mean and its interval are numbers, under the names asked for."""
    lines = shown("csv", "trial,acc,confirmed.mean,confirmed.high").splitlines()
    assert lines[:2] == ["trial,acc,confirmed.mean,confirmed.high", "0,0.91234567,0.90123,0.91"]
    assert lines[3] == "2,0.0456,,"
    assert '"lr": 0.01' in shown("json", "lr")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("rank,lrr", "--columns: there is no column 'lrr'. Did you mean lr?"),
        ("", "--columns: there is no column ''."),
        ("lr,params.lr", "--columns names params.lr twice."),
    ],
)
def test_unknown_columns(names: str, message: str) -> None:
    """They are refused with those that there are."""
    with pytest.raises(InputError) as refused:
        shown("latex", names)
    assert refused.value.message == message
    if "no column" in message:
        assert refused.value.hint.startswith("There are: rank, trial, state, value, params.lr, ")


def test_a_name_that_says_two() -> None:
    """A metric called as a parameter: the group tells."""
    rows = [row(0, 0.5, metrics={"lr": 0.25})]
    with pytest.raises(InputError, match=r"lr may be params\.lr or metrics\.lr"):
        exports.export(rows, "csv", STUDY, names=["lr"])
    assert exports.export(rows, "csv", STUDY, names=["metrics.lr"]) == "metrics.lr\n0.25\n"


@pytest.mark.parametrize(
    ("values", "digits", "places"),
    [
        ([0.91234, 0.9], 3, 3),
        ([91.234, 9.0], 3, 1),
        ([912.34, 0.2], 2, None),  # the least would be 0
        ([0.0012, 0.00456], 2, 4),
        ([1e-9, 2e-9], 3, None),
        ([1e7], 3, None),
        ([None, math.nan, 0.0], 3, None),
        ([-12.5, 3.25], 4, 2),
    ],
)
def test_decimals(values: Sequence[float | None], digits: int, places: int | None) -> None:
    assert paper.decimals(values, digits) == places


BROKEN = [row(0, 0.9, feasible=False), row(1, 0.8, feasible=True), row(2, None, rank=None)]


@pytest.mark.parametrize(
    ("rows", "direction", "best"),
    [
        (ROWS, "maximize", {"value": {0}, "confirmed.mean": {1}}),
        (ROWS, "minimize", {"value": {2}, "confirmed.mean": {0}}),
        ([row(0, 0.5), row(1, 0.5)], "maximize", {"value": {0, 1}}),
        (BROKEN, "maximize", {"value": {1}}),
        ([row(0, math.nan)], "maximize", {}),
        ([], "maximize", {}),
    ],
)
def test_the_best(rows: list[dict[str, Any]], direction: str, best: Mapping[str, set[int]]) -> None:
    """Equal ones all; none that breaks a constraint, or has no finite value."""
    study = make_study(SPACE, objectives=(Objective("acc", direction),))
    assert paper.best_cells(rows, study, None) == best


def test_the_best_by_another_metric() -> None:
    rows = [row(0, 0.5, metrics={"ms:min": 3.0}), row(1, 0.4, metrics={"ms:min": 2.0})]
    found = paper.best_cells(rows, STUDY, Objective("ms", "minimize"))
    assert found == {"value": {0}, "metrics.ms:min": {1}}


def test_all_columns_hold_one_mean() -> None:
    """People read it with its interval; the bounds alone are for programs."""
    heading = str(exports.export(ROWS, "markdown", STUDY)).splitlines()[0]
    assert "| mean | seeds |" in heading and "low" not in heading
    assert "confirmed.low" in [column.name for column in columns(ROWS, STUDY)]


@pytest.mark.real
def test_pdflatex_takes_it(tmp_path: Path) -> None:
    """A real LaTeX sets the whole table, and warns of nothing that is missing."""
    require("latex")
    table = exports.export(ROWS, "latex", STUDY, digits=3, best={"value": {0}})
    packages = r"\usepackage[T1]{fontenc}\usepackage{booktabs}"
    text = rf"\documentclass{{article}}{packages}\begin{{document}}{table}\end{{document}}"
    (tmp_path / "paper.tex").write_text(text.replace(r"{document}%", "{document}\n%"))
    argv = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in done.stdout
    assert (tmp_path / "paper.pdf").stat().st_size > 1000


def test_the_metric_that_ranks_is_a_column() -> None:
    """Once, whatever it is called by; the objective is asked for as any other column."""
    study, by = make_study(), Objective("loss", "minimize")
    assert paper.with_ranking(["rank", "lr"], by, study) == ["rank", "lr", "metrics.loss:min"]
    for names in (["loss:min"], ["lr", "metrics.loss:min"], []):
        assert paper.with_ranking(names, by, study) == names
    assert paper.with_ranking(["lr"], None, study) == ["lr"]
    assert paper.with_ranking(["lr"], study.objective, study) == ["lr"]
