"""A function, or keys in Python, as the study file that they stand for."""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import sweep as python
from sweep.core.errors import InputError
from sweep.core.paths import Runs
from sweep.integrations.function import report, takes_reporter
from sweep.studyfile.from_python import as_file
from sweep.studyfile.given_function import command_of

KEYS: dict[str, Any] = {
    "objective": "loss",
    "direction": "minimize",
    "space": {"x": {"type": "float", "low": -1, "high": 1}},
    "trials": 3,
    "max_parallel": 2,
    "executor": "local",
}


def top(config: dict[str, Any]) -> float:
    return float(config["x"])


def test_a_function_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported by its module's name from the folder above its packages."""
    made = command_of(top, None, "loss")
    assert made["command"] == [
        *("python", "-m", "sweep.integrations.function", "--metric", "loss"),
        *("tests.studyfile.test_given_function:top", "{config}"),
    ]
    assert made["workdir"] == str(Path(__file__).resolve().parents[2])
    assert made["config"] == {"format": "json"}
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "its_training.py").write_text("def train(config): return 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    module = importlib.import_module("its_training")
    monkeypatch.setitem(sys.modules, "its_training", module)
    assert command_of(module.train, None, "loss")["workdir"] == str(tmp_path / "src")
    below = command_of(module.train, tmp_path, "loss")
    assert (below["workdir"], below["command"][-2]) == (str(tmp_path), "src.its_training:train")
    with pytest.raises(InputError, match="which is not in the workdir"):
        command_of(module.train, tmp_path / "elsewhere", "loss")


def typed_in() -> Any:
    """Return a function as a notebook has it: of __main__, which has no file."""
    space: dict[str, Any] = {"__name__": "a_console"}
    exec("def train(config): return 1.0", space)
    return space["train"]


def closure() -> Any:
    def inner(config: dict[str, Any]) -> float:
        return 1.0

    return inner


def no_argument() -> float:
    return 1.0


def three(config: Any, reporter: Any, more: Any) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("function", "said", "hint"),
    [
        (lambda config: 1.0, "is a lambda", "at the top level"),
        (closure(), "is inside closure", "at the top level"),
        (typed_in(), "was typed in", "from train import train"),
        (functools.partial(top), "is no function", "def train"),
        (len, "is no function", "def train"),
        (no_argument, "cannot be called with a configuration", "def no_argument(config, reporter)"),
        (three, "cannot be called with a configuration", "def three(config, reporter)"),
    ],
)
def test_what_no_training_could_find(function: Any, said: str, hint: str) -> None:
    """It is refused with what to do, before anything is made."""
    with pytest.raises(InputError, match=said) as caught:
        command_of(function, None, "loss")
    assert hint in caught.value.hint


class Told:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def log(self, step: int | None = None, metrics: Any = None) -> None:
        self.reports.append(metrics)


class Tensor:
    def item(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("returned", "reports"),
    [
        (None, []),
        (0.25, [{"loss": 0.25}]),
        (3, [{"loss": 3}]),
        ({"loss": 1.0, "acc": 0.5}, [{"loss": 1.0, "acc": 0.5}]),
    ],
)
def test_what_it_returns_is_its_last_report(returned: Any, reports: list[Any]) -> None:
    """A number is the objective's; a dict has its own names."""
    told = Told()
    report(told, "loss", returned)
    assert told.reports == reports


def test_a_tensor_is_a_number() -> None:
    """The reporter reads what has one element."""
    told, value = Told(), Tensor()
    report(told, "loss", value)
    assert told.reports == [{"loss": value}]


@pytest.mark.parametrize("returned", ["0.5", True, [0.5]])
def test_what_is_no_number(returned: Any) -> None:
    """A mistake is no result."""
    with pytest.raises(TypeError, match="must return a number"):
        report(Told(), "loss", returned)


def test_who_takes_a_reporter() -> None:
    """By how many arguments it takes."""
    assert not takes_reporter(top)
    assert takes_reporter(lambda config, reporter: 0)
    assert takes_reporter(lambda *given: 0)
    assert not takes_reporter(lambda config, *, reporter=None: 0)


def test_a_study_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Study, a dict or a function become a study file that the shell's commands take as well."""
    monkeypatch.chdir(tmp_path)
    runs = Runs(tmp_path / "runs")
    study = python.Study(name="digits", command="python t.py", points="good.csv", **KEYS)
    assert isinstance(study.keys["objective"], str)
    path, overrides = as_file(study, {"trials": 9}, runs)
    assert (path, overrides) == (runs.root / "digits.yaml", [])
    told = json.loads(path.read_text().partition("\n")[2])
    assert told["objective"] == {"metric": "loss", "direction": "minimize"}
    assert (told["trials"], told["workdir"]) == (9, str(tmp_path))
    assert told["points"] == str(tmp_path / "good.csv")
    assert os.stat(path).st_mode & 0o077 == 0
    assert as_file("study.yaml", {"trials": 9, "resources": {"gpus": 1}}, runs) == (
        Path("study.yaml"),
        ["trials=9", 'resources={"gpus": 1}'],
    )
