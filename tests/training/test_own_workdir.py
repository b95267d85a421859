"""``workdir: trial``: a working folder of an attempt's own, over the code that all trials share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Environment, Study
from sweep.training.own_workdir import Laid, lay, tidy
from tests.training.test_command import make_study


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code/sub"
    for name in ("pkg", "data", "outputs", "lightning_logs/version_0", "saved", ".git", "empty"):
        (folder / name).mkdir(parents=True)
    for name in ("train.py", "pkg/a.py", "data/x.csv", "saved/.gitkeep", "outputs/old", ".git/x"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    folder = AttemptFolder(tmp_path / "attempt")
    folder.root.mkdir()
    return folder


def make(code: Path, **more: object) -> Study:
    command = ["python", "train.py", "../x.yaml", "--d=../data", "{lr}"]
    return make_study(command, workdir=str(code), own_workdir=True, **more)


def test_a_working_folder_over_the_code(code: Path, attempt: AttemptFolder) -> None:
    """Links to the code, none to what is output or empty; what leads out of it still means that."""
    laid = lay(make(code), {"A": "1", "PYTHONPATH": f"/p:{code}"}, attempt)
    assert laid.cwd == str(attempt.work)
    assert {p.name: os.readlink(p) for p in attempt.work.iterdir()} == {
        name: str(code / name) for name in ("pkg", "data", "train.py")
    }
    assert laid.environ == {"A": "1", "PYTHONPATH": f"{code}:/p"}
    above = str(code.parent)
    words = ("python", "train.py", f"{above}/x.yaml", f"--d={above}/data", "{lr}")
    assert laid.study.command == words and laid.study.workdir == str(code)
    (attempt.work / "lightning_logs").mkdir()
    (attempt.work / "lightning_logs/mine").write_text("")
    tidy(attempt)
    assert [p.name for p in attempt.work.iterdir()] == ["lightning_logs"]
    assert (code / "train.py").read_text() == "train.py"


def test_without_it_nothing_is_made(code: Path, attempt: AttemptFolder) -> None:
    """And an empty one goes again."""
    study = make_study(["python", "train.py"], workdir=str(code))
    assert lay(study, {"A": "1"}, attempt) == Laid(study, {"A": "1"}, str(code))
    tidy(attempt)
    assert not attempt.work.exists()
    lay(make(code), {}, attempt)
    tidy(attempt)
    assert not attempt.work.exists()


def test_environments_find_what_they_need(code: Path, attempt: AttemptFolder) -> None:
    """A venv does not move; a container starts there, and sees the code where it always does."""
    given = Environment("venv", image=".venv", env={"PYTHONPATH": "/own"})
    laid = lay(make(code, environment=given), {}, attempt)
    assert laid.study.environment.image == str(code / ".venv")
    assert laid.study.environment.env == {"PYTHONPATH": f"{code}:/own"}
    tidy(attempt)
    bound = make_study(
        ["python", "train.py"],
        workdir="/there/sub",
        own_workdir=True,
        environment=Environment(
            "apptainer", image="/i.sif", binds=(f"{code.parent}:/there", "/a:/there/sub/b")
        ),
    )
    laid = lay(bound, {}, attempt)
    assert laid.study.environment.workdir == str(attempt.work)
    assert os.readlink(attempt.work / "train.py") == "/there/sub/train.py"
    assert laid.environ["PYTHONPATH"] == "/there/sub"
