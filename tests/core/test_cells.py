"""What a cell of a CSV file says: both ways, for every kind of choice."""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.cells import BOOKKEEPING, guarded, parameter_columns, read_cell, unguarded
from sweep.core.errors import StudyFileError
from sweep.core.space import Parameter, Space
from sweep.core.study import Constraint, Objective, Study
from sweep.results.columns import columns, long_columns
from sweep.results.exports import export
from sweep.studyfile import loads

VALUES: list[Any] = [
    1, 0, -1, 2.5, -0.5, 1e-300, 1e22, True, False, None, 2**53,
    "1", "0", "-1", "2.5", "1e22", "true", "True", "TRUE", "false", "null", "None", "NA", "nan",
    "", " ", " a ", "a", "adam", "a,b", 'a"b', "a\nb", "a\rb", "\ta", "é", "日本",
    "=1+2", "+1", "-x", "@x", "=cmd|' /C calc'!A0", "'", "'a", "'=1", "''=1", "'-1", "'",
    '"a"', "[1]", "[", "{}", '{"a": 1}', '"', "[1] ",
    [], [1], [True], ["1"], [None], [1.5, "a,b"], {"a": 1}, {"a": "1"}, {},
]  # fmt: skip


def a_study(space: Space) -> Study:
    return Study("s", ("true",), (Objective("acc", "maximize"),), space, trials=9)


def a_row(number: int, params: Mapping[str, Any], **other: Any) -> dict[str, Any]:
    row = dict.fromkeys(("duration_s", "gpu_hours", "energy_j", "started", "ended"))
    row |= {"rank": 7, "trial": 7, "state": "complete", "value": 7.5, "seed": 7, "attempts": 7}
    return row | {"reason": "", "params": params} | other


def file_of(path: Path, name: str, choices: Sequence[Any]) -> str:
    """Write a study file whose points are those of ``points.csv``, which has all choices."""
    space = Space((Parameter(name, "categorical", choices=tuple(choices)),))
    rows = [a_row(i, {name: choice}) for i, choice in enumerate(choices)]
    text = export(rows, "csv", a_study(space))
    assert isinstance(text, str)
    (path / "points.csv").write_text(text, encoding="utf-8", newline="")
    return json.dumps(
        {
            "name": "s",
            "command": "train {config}",
            "objective": {"metric": "acc", "direction": "maximize"},
            "space": {name: {"type": "categorical", "choices": list(choices)}},
            "points": "points.csv",
            "trials": len(choices),
        }
    )


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return the values that Optuna can tell apart: to it true is 1, and a list is its JSON."""
    kept: dict[Any, Any] = {}
    for value in values:
        kept.setdefault(json.dumps(value) if isinstance(value, list | dict) else value, value)
    return list(kept.values())


def as_text(values: Sequence[Any]) -> list[str]:
    return [json.dumps(value) for value in values]


@pytest.mark.parametrize("seed", range(60))
def test_choices_survive_the_export_and_the_reading(tmp_path, seed):
    """Whatever stands side by side: value and type come back, through our own CSV."""
    chance = random.Random(seed)
    choices = distinct(chance.sample(VALUES, chance.randint(1, 6)))
    study = loads(file_of(tmp_path, "p", choices), tmp_path / "s.yaml")
    assert as_text([point["p"] for point in study.points]) == as_text(choices)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_each_choice_survives_alone_and_beside_its_twin_of_text(tmp_path, value):
    """A value, alone and beside the text that looks like it."""
    for choices in ([value], distinct([value, json.dumps(value), str(value), f"'{value}"])):
        study = loads(file_of(tmp_path, "p", choices), tmp_path / "s.yaml")
        assert as_text([point["p"] for point in study.points]) == as_text(choices)


def test_a_spreadsheet_computes_no_cell():
    """No cell that is not a number starts with what a spreadsheet takes for a formula."""
    texts = [value for value in VALUES if isinstance(value, str)]
    space = Space((Parameter("p", "categorical", choices=tuple(dict.fromkeys(texts))),))
    rows = [a_row(0, {"p": text}, reason=text, checkpoint=text) for text in texts]
    lines = csv.reader(io.StringIO(str(export(rows, "csv", a_study(space))), newline=""))
    for cell in itertools.chain.from_iterable(lines):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell


@pytest.mark.parametrize("text", ["=1", "+1", "'=1", "''=1", "'a", "a", "", "-", "@x", "'"])
def test_a_guard_is_taken_off_again(text):
    """Only before a formula's sign is an apostrophe a guard."""
    assert unguarded(guarded(text)) == text
    assert not guarded(text).startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize(
    ("parameter", "cell", "expected"),
    [
        (Parameter("p", "int", low=-5, high=5), "'-1", -1),
        (Parameter("p", "int", low=-5, high=5), "2.0", 2),
        (Parameter("p", "float", low=-5, high=5), "'-1.5", -1.5),
        (Parameter("p", "categorical", choices=("=x", "a")), "'=x", "=x"),
        (Parameter("p", "categorical", choices=("=x", "'=x")), "'=x", "'=x"),
        (Parameter("p", "categorical", choices=(-1, "a")), "'-1", -1),
        (Parameter("p", "categorical", choices=("1", "2")), "1", "1"),
        (Parameter("p", "categorical", choices=("1", 2)), "1", "1"),
        (Parameter("p", "categorical", choices=(1, "1")), "1", 1),
        (Parameter("p", "categorical", choices=(True, False)), "TRUE", True),
        (Parameter("p", "categorical", choices=(None, "a")), "None", None),
        (Parameter("p", "categorical", choices=("null", "a")), "null", "null"),
        (Parameter("p", "categorical", choices=("a", "b")), '"a"', "a"),
        (Parameter("p", "categorical", choices=(32, 64)), "32.0", 32),
        (Parameter("p", "categorical", choices=(1, 2)), "true", "true"),
    ],
)
def test_cells_of_other_origin(parameter, cell, expected):
    """What people and other tools write: the choices decide what it can mean."""
    found = read_cell(cell, parameter)
    assert (type(found), found) == (type(expected), expected)


OURS = ["rank", "trial", "state", "value", "params.lr", "metrics.loss", "seed", "attempts"]


@pytest.mark.parametrize(
    ("header", "names", "expected"),
    [
        (OURS, ["lr"], {"lr": "params.lr"}),
        (OURS, ["lr", "value", "seed", "metrics.loss"], {"lr": "params.lr"}),
        ([*OURS, "wd"], ["lr", "wd"], {"lr": "params.lr", "wd": "wd"}),
        ([*OURS, "params.value"], ["value"], {"value": "params.value"}),
        (["rank", "trial", "state", "value"], ["value"], {}),
        (["trial", "attempt", "step", "metric", "value", "logged"], ["value", "step"], {}),
        (["number", "value", "state", "params_lr"], ["lr", "number"], {"lr": "params_lr"}),
        (["params.lr", "value"], ["value", "wd"], {}),
        (["value", "seed"], ["value", "seed"], {"value": "value", "seed": "seed"}),
        (["rank", "lr"], ["rank", "lr"], {"rank": "rank", "lr": "lr"}),
        (["value", "comment"], ["value"], {"value": "value"}),
        (["params.lr"], ["params.lr"], {"params.lr": "params.lr"}),
        (["lr", "params.lr"], ["lr", "params.lr"], {"lr": "params.lr", "params.lr": "params.lr"}),
    ],
)
def test_columns_of_parameters(header, names, expected):
    """Bookkeeping of an export fills no parameter; in a file of one's own each name is one."""
    assert parameter_columns(header, names) == expected


@pytest.mark.parametrize("name", sorted(BOOKKEEPING))
def test_no_parameter_is_filled_from_bookkeeping(tmp_path, name):
    """Points from an export that lacks the parameter, and from one that has it."""
    with pytest.raises(StudyFileError, match="no column that is a parameter"):
        loads(
            file_of(tmp_path, "other", [1, 2]).replace('"other"', json.dumps(name)),
            tmp_path / "s.yaml",
        )
    study = loads(file_of(tmp_path, name, [1, 2]), tmp_path / "s.yaml")
    assert [point[name] for point in study.points] == [1, 2]


def test_every_heading_of_an_export_is_known():
    """A column that is added to the exports is added to the names that fill no parameter."""
    objectives = (Objective("a", "maximize"), Objective("b", "minimize"))
    bound = (Constraint("m", max=1.0),)
    for study in (
        Study("s", ("true",), objectives[:1], Space(), constraints=bound),
        Study("s", ("true",), objectives, Space()),
    ):
        row = a_row(0, {"p": 1}, values={"a": 1, "b": 2}, metrics={"m": 1.0}, checkpoint="/c")
        for column in (*columns([row], study), *long_columns([], study)):
            assert column.name in BOOKKEEPING or column.name.startswith(
                ("params.", "values.", "metrics.")
            )


def test_a_column_twice_is_refused(tmp_path):
    """Which of two columns of one name is meant cannot be known."""
    text = file_of(tmp_path, "p", [1, 2])
    (tmp_path / "points.csv").write_text("p,p\n1,2\n", encoding="utf-8")
    with pytest.raises(StudyFileError, match="has the column p twice"):
        loads(text, tmp_path / "s.yaml")
