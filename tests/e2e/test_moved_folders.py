"""The runs folder is moved, renamed, linked or copied, or loses its database: commands work, or say
what to do; and no empty database is ever made in a place where there was one."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from sweep.storage.embedded import start_stop
from tests.cli.commands import wait_for_runners
from tests.conftest import Ran, find_crash_files, run_sweep
from tests.processes import end_processes
from tests.toys import write_toy
from tests.waiting import text_of, wait_for

NAME = "toy"
COMMANDS: dict[str, list[str]] = {
    "status": ["status", NAME, "--json"],
    "collect": ["collect", NAME, "--format", "json"],
    "logs": ["logs", NAME, "1"],
    "report": ["report", NAME, "-o", "page.html"],
    "launch": ["launch", "study.yaml", "--wait"],
    "rerun-best": ["rerun-best", NAME, "--wait", "--json"],
    "confirm": ["confirm", NAME, "--top", "2", "--seeds", "2", "--wait"],
}
LOOKING = ("status", "collect", "logs", "report")
RUNNING = ("launch", "rerun-best", "confirm")
QUICK = ("status", "collect", "launch")


@dataclass(frozen=True)
class Place:
    """A runs folder after something has been done to it.

    Attributes:
        old: Where the study was launched.
        now: The runs folder that commands are given.
        refused: What each command says that does not work there.
        databases: The folders in which a database may be at the end.
    """

    old: Path
    now: Path
    refused: dict[str, str]
    databases: tuple[Path, ...]


def moved(runs: Path) -> Place:
    new = runs.parent / "elsewhere/deeper/kept"
    new.parent.mkdir(parents=True)
    runs.rename(new)
    return Place(runs, new, {}, (new,))


def linked(runs: Path) -> Place:
    """Its own place has become a link, as on a file system that was full."""
    new = runs.parent / "scratch"
    runs.rename(new)
    runs.symlink_to(new)
    return Place(runs, runs, {}, (runs, new))


def by_its_other_name(runs: Path) -> Place:
    return Place(runs, linked(runs).databases[1], {}, (runs, runs.parent / "scratch"))


def copied(runs: Path) -> Place:
    new = runs.parent / "copy"
    shutil.copytree(runs, new, symlinks=True, copy_function=copy_what_is_there)
    return Place(runs, new, dict.fromkeys(RUNNING, "is a copy: "), (runs, new))


def copy_what_is_there(source: str, target: str) -> None:
    """Copy a file, unless the server that runs there has removed it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def remove(folder: Path) -> None:
    """Remove a folder in which a server or its watcher may be writing its last."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_for(is_gone, f"{folder} to be gone")


def without_database(runs: Path) -> Place:
    remove(runs / ".postgres")
    gone = dict.fromkeys(COMMANDS, "The database is gone: ")
    return Place(runs, runs, gone | {"launch": "does not hold it (any more)"}, ())


def without_data(runs: Path) -> Place:
    remove(runs / ".postgres/pgdata")
    return Place(runs, runs, without_database(runs).refused, ())


def moved_without_database(runs: Path) -> Place:
    new = runs.parent / "new"
    new.mkdir()
    (runs / NAME).rename(new / NAME)
    remove(runs)
    gone = dict.fromkeys(COMMANDS, "The database is gone: ")
    return Place(runs, new, gone | {"launch": "this launch would put it into"}, ())


def study_alone(runs: Path) -> Place:
    """The database stays, and serves the study at its new place."""
    new = runs.parent / "new"
    new.mkdir()
    (runs / NAME).rename(new / NAME)
    return Place(runs, new, {"launch": "this launch would put it into"}, (runs,))


CHANGES: list[Callable[[Path], Place]] = [
    *(moved, linked, by_its_other_name, copied),
    *(without_database, without_data, moved_without_database, study_alone),
]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where a study was launched, and what was there when it had ended and its server stopped."""
    top = tmp_path_factory.mktemp("moved")
    folder, kept = top / "place", top / "kept"
    write_toy(
        folder, name=NAME, trials=2, command="[python, train.py, '{params}', '--seed={seed}']"
    )
    text = (folder / "train.py").read_text()
    seed = 'parser.add_argument("--seed")\nflags ='
    (folder / "train.py").write_text(text.replace("flags =", seed, 1))
    ran = run_sweep("launch", "study.yaml", "--wait", runs=folder / "runs", cwd=folder)
    assert ran.code == 0, ran
    wait_for_runners(folder / "runs" / NAME)
    end_all(folder)
    folder.rename(kept)
    return folder, kept


def end_all(folder: Path) -> None:
    for data in [*folder.rglob(".postgres")]:
        start_stop.stop(data)
    end_processes(folder)


@pytest.fixture
def place(ended: tuple[Path, Path]) -> Iterator[Path]:
    """A folder in which the study has been launched: put back as it was then."""
    folder, kept = ended
    subprocess.run(["cp", "-a", "--no-target-directory", kept, folder], check=True)
    yield folder
    end_all(folder)
    assert find_crash_files(folder) == []
    remove(folder)


CASES = [
    pytest.param(change, stopped, every, marks=[pytest.mark.long] if every else [])
    for every in (False, True)
    for number, change in enumerate(CHANGES)
    for stopped in ((True, False) if every else (number % 2 == 0,))
]


@pytest.mark.parametrize(("change", "stopped", "every"), CASES)
def test_commands_work_or_say_what_to_do(
    place: Path, change: Callable[[Path], Place], stopped: bool, every: bool
) -> None:
    """In the short form a few commands; ``stopped``: the server, when the folder is changed."""
    if not stopped:
        assert run_sweep("status", NAME, runs=place / "runs", cwd=place).code == 0
    done = change(place / "runs")
    call: Callable[..., Ran] = partial(run_sweep, runs=done.now, cwd=place)
    for name in COMMANDS if every or change is moved else QUICK:
        ran = call(*COMMANDS[name])
        if name in done.refused:
            assert ran.code in (1, 2) and done.refused[name] in ran.err, (name, ran)
            assert len(ran.err.splitlines()) > 1
            continue
        assert ran.code == 0, (name, ran)
        if name == "status":
            assert json.loads(ran.out)["counts"]["complete"] == 2
        elif name == "collect":
            assert len(json.loads(ran.out)) == 2
        elif name == "rerun-best":
            assert json.loads(ran.out)["verdict"] == "reproduced"
        elif name == "launch" and change is moved:
            assert f"folder: {done.old / NAME} before, {done.now / NAME} now" in ran.out + ran.err
    found = {path.parent.parent for path in place.rglob("*/.postgres/pgdata")}
    found |= {done.old} if (done.old / ".postgres/pgdata").exists() else set()
    assert found <= set(done.databases) | {path.resolve() for path in done.databases}


def test_a_folder_that_moves_under_its_tasks_is_not_launched(place: Path) -> None:
    """They look for it where it was; the second launch would start others beside them."""
    gate = place / "gate"
    text = (place / "study.yaml").read_text()
    command = f"[python, train.py, '{{params}}', '--seed={{seed}}', '--gate', '{gate}']"
    (place / "study.yaml").write_text(
        "\n".join(
            f"command: {command}" if line.startswith("command:") else line
            for line in text.replace("trials: 2", "trials: 4").splitlines()
        )
    )
    runs = place / "runs"
    assert run_sweep("launch", "study.yaml", runs=runs, cwd=place).code == 0
    # At the gate they write nothing more, so that the folder may move under them.
    attempts = [runs / NAME / f"trials/0000{number}/attempts/1" for number in (2, 3)]
    wait_for(
        lambda: all(text_of(attempt / "checkpoints/last") == "1" for attempt in attempts),
        "two trainings at the gate",
    )
    wait_for(  # which their tasks write while they train
        lambda: all((attempt / "manifest.json").exists() for attempt in attempts), "their records"
    )
    new = place / "new"
    runs.rename(new)
    ran = run_sweep("launch", "study.yaml", runs=new, cwd=place)
    assert ran.code == 1 and f"has moved from {runs / NAME} to {new / NAME}" in ran.err, ran
    assert "Move it back" in ran.err
    new.rename(runs)
    assert run_sweep("stop", NAME, "--now", runs=runs, cwd=place).code == 0

    def left() -> int:
        ran = run_sweep("status", NAME, "--json", runs=runs, cwd=place)
        return sum((json.loads(ran.out)["tasks"] or {"unknown": 1}).values())

    wait_for(lambda: left() == 0, "the tasks to leave")
    wait_for_runners(runs / NAME)
    runs.rename(new)
    gate.touch()
    ran = run_sweep("launch", "study.yaml", "--wait", runs=new, cwd=place)
    assert ran.code == 0, ran
    status = json.loads(run_sweep("status", NAME, "--json", runs=new, cwd=place).out)
    assert status["counts"]["complete"] == 4
    assert not runs.exists()
