"""The command line without a study: exit codes, suggestions, help, and the crash file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from sweep import cli
from sweep.cli import status
from sweep.core.errors import (
    BusyError,
    CouldNotAsk,
    DatabaseUnavailable,
    InputError,
    LeftRunning,
    Problem,
    SchedulerError,
    StudyChangedError,
    StudyFileError,
    SweepError,
)

ROOT = Path(__file__).parents[2]
PROBLEM = Problem("study.yaml", 3, "trials", "must be > 0", "0", "For example 30.")


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command line with a command that raises this."""

    def main(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli.main_group, "main", main)
    return cli.run_command(["status"])


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
        (LeftRunning("You left.", "End it."), 130, "\nYou left.\nEnd it.\n"),
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
    assert cli.run_command([word]) == 2
    text = capsys.readouterr().err
    assert f"Error: There is no command {word!r}. Did you mean {near}?" in text


@pytest.mark.parametrize("name", cli.command_names())
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's help says what it does and shows a call of it."""
    assert cli.run_command([name, "--help"]) == 0
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
    assert cli.run_command(arguments) == code
    got = capsys.readouterr()
    assert (got.out + got.err).strip() != ""


@pytest.mark.parametrize("code", [0, 1, 3])
def test_what_a_command_returns_is_the_exit_code(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command whose result is no success, but no error either, says so by its code."""
    monkeypatch.setattr(status.status, "callback", lambda **_: code)
    assert cli.run_command(["status"]) == code


def test_every_command_is_found() -> None:
    """Each module is a command, named as it; what --help says of it fits on its line."""
    names = cli.command_names()
    assert {"launch", "rerun-best", "collect", "db"} <= set(names)
    context = click.Context(cli.main_group)
    width = 80 - max(map(len, names)) - 4
    for name in names:
        command = cli.main_group.get_command(context, name)
        assert command is not None and command.name == name
        assert re.fullmatch(r"[A-Z].*[.]", cli.sentence_of(name)), name
        assert len(cli.sentence_of(name)) <= width, name


def test_help_imports_no_command() -> None:
    """It shows each command with its sentence, and is quick: nothing of them is imported."""
    code = (
        "import sys; from sweep import cli; cli.run_command(['--help']);"
        "print(*sorted(n for n in sys.modules if n.startswith('sweep.')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in cli.command_names():
        assert f"  {name} " in done.stdout
        assert cli.sentence_of(name) in done.stdout
    rooms = {name.split(".")[1] for name in done.stderr.split()}
    assert rooms == {"cli", "core"}
    assert not [name for name in done.stderr.split() if name.startswith("sweep.cli.")]
