"""The command line without a study: exit codes, suggestions, help, and the crash file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from sweep import cli
from sweep.cli.common import Queue
from sweep.core import executors
from sweep.core.errors import (
    BusyError,
    CouldNotAsk,
    DatabaseUnavailable,
    InputError,
    NotReproduced,
    Problem,
    SchedulerError,
    StudyChangedError,
    StudyFileError,
    SweepError,
)

PROBLEM = Problem("study.yaml", 3, "trials", "must be > 0", "0", "For example 30.")


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command line with a command that raises this."""

    def main(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli.main_group, "main", main)
    return cli.run(["status"])


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SweepError("It broke.", "Mend it."), 1, "Error: It broke.\nMend it.\n"),
        (SweepError("It broke."), 1, "Error: It broke.\n"),
        (InputError("No such thing."), 2, "Error: No such thing.\n"),
        (
            StudyFileError([PROBLEM, PROBLEM]),
            2,
            "Error: study.yaml:3: trials: must be > 0 (got 0). For example 30.\n"
            "study.yaml:3: trials: must be > 0 (got 0). For example 30.\n",
        ),
        (StudyChangedError("It differs."), 2, "Error: It differs.\n"),
        (BusyError("Another one."), 1, "Error: Another one.\n"),
        (SchedulerError("Refused."), 1, "Error: Refused.\n"),
        (CouldNotAsk("No answer."), 1, "Error: No answer.\n"),
        (DatabaseUnavailable("It is away."), 1, "Error: It is away.\n"),
        (NotReproduced("It differs."), 3, "Error: It differs.\n"),
        (KeyboardInterrupt(), 130, "Interrupted. Nothing is lost: give the same command again.\n"),
        (click.Abort(), 130, "Interrupted. Nothing is lost: give the same command again.\n"),
        (click.UsageError("Wrong."), 2, "Error: Wrong.\n"),
    ],
)
def test_exit_codes(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each failure has its exit code, and prints what went wrong and what to do."""
    assert fail_with(error, monkeypatch) == code
    got = capsys.readouterr()
    assert (got.out, got.err) == ("", text)


@pytest.mark.crashes
def test_fault_leaves_a_crash_file_without_passwords(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A fault of ours exits with 70 and names a private file that holds the traceback."""
    monkeypatch.setenv("SWEEP_RUNS", str(tmp_path / "runs"))
    error = ValueError("cannot open postgresql://me:s3cret@host/db")
    assert fail_with(error, monkeypatch) == 70
    (path,) = (tmp_path / "runs" / ".crashes").iterdir()
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.startswith("Error: a fault of sweep's own (ValueError). Details are in ")
    assert str(path) in got.err
    text = path.read_text()
    assert "ValueError: cannot open postgresql://me:***@host/db" in text
    assert "s3cret" not in text + got.err
    assert "command: ['status']" in text
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("lauch", "launch"),
        ("colect", "collect"),
        ("log", "logs"),
        ("rerun", "rerun-best"),
        ("stats", "status"),
        ("inti", "init"),
    ],
)
def test_mistyped_command(word: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped command is answered with the one that was meant."""
    assert cli.run([word]) == 2
    text = capsys.readouterr().err
    assert f"Error: There is no command {word!r}. Did you mean {near}?" in text


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's help says what it does and shows a call of it."""
    assert cli.run([name, "--help"]) == 0
    got = capsys.readouterr()
    assert got.err == ""
    assert got.out.startswith(f"Usage: sweep {name} ")
    assert f"sweep {name}" in got.out.partition("Example")[2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--help"], 0),
        (["-h"], 0),
        (["--version"], 0),
        (["status", "--nope"], 2),
        (["launch"], 2),
        (["db", "nope"], 2),
        (["logs"], 2),
        (["logs", "a", "b", "c"], 2),
        (["logs", "-1"], 2),
        (["collect", "--top", "0"], 2),
        (["rerun-best", "--seeds", "-1"], 2),
        (["launch", "x.yaml", "--executor", "pbs"], 2),
        (["init", "no-such-script.py"], 2),
    ],
)
def test_usage_exit_codes(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong call exits with 2 and a text, help and version with 0."""
    assert cli.run(arguments) == code
    got = capsys.readouterr()
    assert (got.out + got.err).strip() != ""


def test_every_command_is_found() -> None:
    """The table of commands names real commands."""
    context = click.Context(cli.main_group)
    for name in cli.COMMANDS:
        command = cli.main_group.get_command(context, name)
        assert command is not None and command.name == name


class Counted(Queue):
    """Notes when everything that goes to the scheduler is asked."""

    def __init__(self, name: str, now_s: list[float]) -> None:
        schedule: Any = executors.get(name)
        super().__init__(SimpleNamespace(), schedule, now_s=lambda: now_s[0])  # type: ignore[arg-type]
        self.times: list[float] = []

    def _ask(self) -> dict[str, Any]:
        self.times.append(self.now_s())
        return {"asked": len(self.times)}


@pytest.mark.parametrize(("name", "times"), [("slurm", [0.0, 30.0, 60.0]), ("local", None)])
def test_a_view_that_stays_asks_a_cluster_every_30_s(name: str, times: list[float] | None) -> None:
    """Looking after the study included, however often the view is renewed."""
    now_s = [0.0]
    queue = Counted(name, now_s)
    seen = []
    for tick in range(45):
        now_s[0] = 2.0 * tick
        seen.append(queue.ask()["asked"])
    assert queue.times == (times or [2.0 * tick for tick in range(45)])
    assert seen == sorted(seen)
