"""The command line: exit codes, suggestions, help, the crash file, Ctrl-C, readers that leave."""

from __future__ import annotations

import json
import re
import shlex
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
from sweep.core.own_version import VERSION
from tests.cli.commands import collected, counts, gated, steps_of, type_ctrl_c
from tests.conftest import Sweep, sweep_environment
from tests.toys import write_toy
from tests.waiting import PATIENCE_S

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


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a checkout on PYTHONPATH, of which nothing is installed."""
    assert cli.run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"sweep, version {VERSION}\n"


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


def said_commands() -> list[tuple[str, str, str]]:
    """Return (file, command, its options) of each call of sweep in a text's blocks of code."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"^```\w*\n(.*?)^```|`(sweep [^`\n]+)`", text, re.DOTALL | re.MULTILINE)
        for block in blocks:
            for name, rest in re.findall(
                r"^\s*sweep ([a-z][a-z-]*)([^#|;\n]*)", "".join(block), re.M
            ):
                if name != "task":  # what `top` shows of a process
                    found.append((path.name, name, rest))
    return found


def test_the_commands_that_texts_name_exist() -> None:
    """README and docs: each command and each of its options."""
    said = said_commands()
    assert len(said) > 20
    context, wrong = click.Context(cli.main_group), []
    for file, name, rest in said:
        command = cli.main_group.get_command(context, name)
        if isinstance(command, click.Group):
            command = command.get_command(context, rest.split()[0])
        if command is None:
            wrong.append(f"{file}: sweep {name}{rest}")
            continue
        known = {"--help"}
        for one in command.params:
            known |= {*one.opts, *one.secondary_opts}
        if set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) - known:
            wrong.append(f"{file}: sweep {name}{rest}")
    assert wrong == []


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


def test_the_study_file_names_the_study_too(finished: Sweep) -> None:
    """A command that takes a study's name also takes its file."""
    assert json.loads(finished("status", "study.yaml", "--json").out)["name"] == "toy"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["logs", "99"], "toy has no trial 99.\nIts trials are 0 to 4."),
        (["status", "tyo"], "There is no study 'tyo'"),
        (["collect", "--format", "xml"], "There is no format 'xml'."),
        (["collect", "--state", "done"], "there is no state 'done'."),
        (["rerun-best", "--trial", "99"], "toy has no trial 99.\nIts trials are 0 to 4."),
        (["rerun-best", "--tolerance", "lots"], "--tolerance must be a percentage"),
        (["collect", "--by", "nope", "--minimize"], "No trial has reported nope."),
        (["collect", "--by", "nope"], "Write --by nope:minimize or --by nope:maximize."),
        (["collect", "--maximize"], "--maximize says how to rank --by a metric."),
        (["launch", "nope.yaml"], "There is no study file nope.yaml."),
        (["launch", "study.yaml", "--set", "trials=0"], "trials: must be a whole number from 1"),
        (["launch", "study.yaml", "--set", "trails=9"], "trails: is not a key"),
    ],
)
def test_wrong_words_are_answered(finished: Sweep, arguments: list[str], text: str) -> None:
    """What does not exist is named, with exit code 2, and nothing is printed as a result."""
    ran = finished(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


@pytest.mark.parametrize("command", ["sweep collect --format csv | head -1", "sweep schema | true"])
def test_reader_that_leaves_is_no_failure(finished: Sweep, command: str) -> None:
    """`sweep … | head -1` ends quietly."""
    runs, env = finished.keywords["runs"], finished.keywords["env"]  # type: ignore[attr-defined]
    python = f"{shlex.quote(sys.executable)} -m sweep"
    script = f"set -o pipefail; {command.replace('sweep', python, 1)}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=runs.parent,
        env=sweep_environment(runs, env),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupted_wait_goes_on(sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str) -> None:
    """Ctrl-C while a command waits or watches: 130, what to do next, and the work goes on."""
    path = write_toy(tmp_path, trials=4, command=gated(tmp_path))
    env = sweep_environment(runs, {"SWEEP_STORAGE": fresh_url})

    def ready(text: str) -> bool:
        return steps_of(runs, "toy", 0) >= 2 and "2 running" in text

    for words in (["launch", str(path), "--wait"], ["status", "--watch"]):
        code, text = type_ctrl_c(words, tmp_path, env, ready)
        assert code == 130, text
        assert "You left; the study goes on without you." in text
        assert "sweep stop toy" in text
        assert "Traceback" not in text
    now = json.loads(sweep("status", "--json").out)
    assert (now["state"], sum(now["counts"].values())) == ("running", 4)
    again = sweep("launch", path)
    assert again.code == 0
    assert "runs already:" in again.out
    (tmp_path / "gate").touch()
    assert sweep("launch", path, "--wait").code == 0
    assert counts(sweep) == {"complete": 4}
    assert [row["attempts"] for row in collected(sweep)] == [1, 1, 1, 1]

    (tmp_path / "gate").unlink()
    code, text = type_ctrl_c(
        ["rerun-best", "--wait"],
        tmp_path,
        env,
        lambda text: "trainings again" in text and (runs / "toy/reruns/1/metrics.jsonl").exists(),
    )
    assert code == 130, text
    assert "You left; it goes on. `sweep rerun-best` reports once it has ended." in text
    (tmp_path / "gate").touch()
    assert "reproduced" in sweep("rerun-best", "--wait").out
    assert sorted(path.name for path in (runs / "toy/reruns").iterdir()) == ["1"]
