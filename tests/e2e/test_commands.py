"""The commands as people call them: real processes, a real database, real trainings."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.conftest import Ran, Sweep, run_sweep, stop_runs, sweep_environment
from tests.postgres_fixture import Server
from tests.processes import find_processes, wait_until_gone
from tests.toys import TRAINING, write_toy

HOSTILE = "a b'c\"d $(touch pwned) `id` %s%j {index} ü;&|*\n#"


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """Run the command line on a database of the test's own, on the server that all share."""
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> Iterator[Sweep]:
    """The command line in a folder whose study, of 5 trials, has ended."""
    folder = tmp_path_factory.mktemp("finished")
    postgres_server.sql("CREATE DATABASE finished")
    env = {"SWEEP_STORAGE": postgres_server.url("finished")}
    call = partial(run_sweep, runs=folder / "runs", cwd=folder, env=env)
    assert call("launch", write_toy(folder, trials=5), "--wait").code == 0
    yield call
    stop_runs(folder / "runs")
    postgres_server.sql("DROP DATABASE finished WITH (FORCE)")


def collected(sweep: Sweep, *arguments: str) -> list[dict[str, Any]]:
    """Return the rows that ``collect`` gives as JSON."""
    ran = sweep("collect", *arguments, "--format", "json")
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def gated(folder: Path) -> str:
    """Return the command of a training that waits for a file ``gate`` in a folder.

    By its absolute path: trainings start in a snapshot of the code.
    """
    return f"[python, train.py, --x, '{{x}}', --steps, '5', --gate, '{folder}/gate']"


def counts(sweep: Sweep) -> dict[str, int]:
    """Return how many trials are in which state, those without any left out."""
    ran = sweep("status", "--json")
    assert ran.code == 0, ran.err
    return {state: count for state, count in json.loads(ran.out)["counts"].items() if count}


def wait_for(condition: Callable[[], bool], what: str, wait_s: float = 180.0) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {wait_s} s for {what}"
        time.sleep(0.1)


def steps_of(runs: Path, name: str, trial: int, attempt: int = 1) -> int:
    """Return how many lines a training has reported so far."""
    path = runs / name / "trials" / f"{trial:05d}" / "attempts" / str(attempt) / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def count_studies(url: str) -> int:
    with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM studies")
        return int(cursor.fetchone()[0])  # type: ignore[index]


# Looking at a study that has ended


def test_status_json_has_the_contracts_keys(finished: Sweep) -> None:
    """`status --json` gives name, state, counts of the six states, best and tasks."""
    ran = finished("status", "--json")
    assert (ran.code, ran.err) == (0, "")
    got = json.loads(ran.out)
    assert (got["name"], got["state"]) == ("toy", "finished")
    assert got["counts"] == {
        "waiting": 0,
        "running": 0,
        "complete": 5,
        "pruned": 0,
        "failed": 0,
        "cancelled": 0,
    }
    assert got["tasks"] == {"pending": 0, "running": 0}
    (best,) = collected(finished, "--top", "1")
    assert got["best"] == {key: best[key] for key in ("trial", "value", "params")}


def test_status_shows_no_colours_in_a_pipe(finished: Sweep) -> None:
    """Where no terminal is, no escape sequence is printed."""
    ran = finished("status")
    assert ran.code == 0
    assert "5 of 5 trials have ended" in ran.out
    assert "\x1b" not in ran.out + ran.err


def test_the_study_file_names_the_study_too(finished: Sweep) -> None:
    """A command that takes a study's name also takes its file."""
    assert json.loads(finished("status", "study.yaml", "--json").out)["name"] == "toy"


def test_collect_json_is_the_contracts(finished: Sweep) -> None:
    """Rows are ranked from the best on, and hold what made them."""
    rows = collected(finished)
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]
    assert sorted(row["trial"] for row in rows) == [0, 1, 2, 3, 4]
    values = [row["value"] for row in rows]
    assert values == sorted(values, reverse=True)
    for row in rows:
        assert row["state"] == "complete"
        assert row["value"] == 1 - (row["params"]["x"] - 0.25) ** 2 - 1 / 4
        assert row["attempts"] == 1
        assert row["duration_s"] > 0
    assert len({row["seed"] for row in rows}) == 5


def test_collect_by_a_metric(finished: Sweep) -> None:
    """The objective's direction is known; a metric with its direction ranks, and is shown."""
    by_score = [row["trial"] for row in collected(finished)]
    assert [row["trial"] for row in collected(finished, "--by", "score")] == by_score
    for asked in (("--by", "loss:minimize"), ("--by", "loss", "--minimize")):
        rows = collected(finished, *asked)
        assert [row["trial"] for row in rows] == by_score
        assert [row["metrics"]["loss:min"] for row in rows] == [-row["value"] for row in rows]
    assert [row["trial"] for row in collected(finished, "--by", "loss:max")] != by_score
    assert "loss:min" in finished("collect", "--by", "loss:minimize", "--no-plots").out


def test_csv_reads_back_equal(finished: Sweep, tmp_path: Path) -> None:
    """What CSV holds are the same numbers, to the last digit."""
    file = tmp_path / "out.csv"
    assert finished("collect", "-o", file).code == 0
    with file.open(newline="") as stream:
        got = [
            (int(row["trial"]), float(row["value"]), float(row["params.x"]), row["params.kind"])
            for row in csv.DictReader(stream)
        ]
    assert got == expected_cells(finished)


def test_parquet_reads_back_equal(finished: Sweep, tmp_path: Path) -> None:
    """What Parquet holds are the same values, with their types."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow (extra: report)")
    file = tmp_path / "out.parquet"
    assert finished("collect", "-o", file).code == 0
    rows = parquet.read_table(file).to_pylist()
    got = [(row["trial"], row["value"], row["params.x"], row["params.kind"]) for row in rows]
    assert got == expected_cells(finished)


@pytest.mark.parametrize(("format_", "cell"), [("markdown", r"\s*\|\s*"), ("latex", r"\s*&\s*")])
def test_tables_for_people_hold_the_same(finished: Sweep, format_: str, cell: str) -> None:
    """A Markdown or LaTeX table has a row a trial, in the same order, with the same values."""
    ran = finished("collect", "--format", format_)
    assert (ran.code, ran.err) == (0, "")
    got = []
    for line in ran.out.splitlines():
        cells = re.split(cell, line.strip().strip("|").removesuffix(r"\\").strip())
        if len(cells) > 3 and cells[0].strip().isdigit():
            got.append((int(cells[0]), int(cells[1]), line))
    wanted = expected_cells(finished)
    assert [(rank, trial) for rank, trial, _ in got] == [
        (rank, cells[0]) for rank, cells in enumerate(wanted, 1)
    ]
    for (_, _, line), (_, value, x, _) in zip(got, wanted, strict=True):
        numbers = [float(text) for text in re.findall(r"\d+\.\d+(?:e-?\d+)?", line)]
        assert any(number == pytest.approx(value, rel=1e-4) for number in numbers)
        assert any(number == pytest.approx(x, rel=1e-3) for number in numbers)


def expected_cells(finished: Sweep) -> list[tuple[int, float, float, str]]:
    return [
        (row["trial"], row["value"], row["params"]["x"], row["params"]["kind"])
        for row in collected(finished)
    ]


def test_logs_prints_what_training_printed(finished: Sweep) -> None:
    """`logs TRIAL` prints the attempt's output between lines that say which, and how it ended."""
    (best,) = collected(finished, "--top", "1")
    ran = finished("logs", best["trial"])
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"--- trial {best['trial']}, attempt 1",
        f"starts at step 0 with x={best['params']['x']}",
        "done",
        "--- attempt 1: finished",
    ]
    assert finished("logs", "toy", best["trial"]).out == ran.out


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


def test_launch_again_does_nothing(finished: Sweep) -> None:
    """A study that has ended is left as it is."""
    ran = finished("launch", "study.yaml")
    said = "study toy: all trials have ended; see: sweep collect\n"
    assert (ran.code, ran.out) == (0, said)
    assert counts(finished) == {"complete": 5}


def test_name_in_use_with_other_content(finished: Sweep, tmp_path: Path) -> None:
    """A changed objective or space under the same name is refused, naming each difference."""
    path = write_toy(tmp_path, trials=5)
    changed = path.read_text().replace("maximize", "minimize").replace("high: 1.0", "high: 2.0")
    path.write_text(changed)
    ran = finished("launch", path)
    assert (ran.code, ran.out) == (2, "")
    assert "A study 'toy' exists and differs where it must not:" in ran.err
    assert 'objective.direction was "maximize" and is now "minimize".' in ran.err
    assert "space.x.high" in ran.err
    assert "Give the new one another `name`" in ran.err
    assert counts(finished) == {"complete": 5}


def test_dry_run_makes_nothing(finished: Sweep, tmp_path: Path) -> None:
    """`--dry-run` shows the array and makes no folder."""
    path = write_toy(tmp_path, name="other", trials=7, parallel=3)
    ran = finished("launch", path, "--dry-run", "--runs", tmp_path / "elsewhere")
    assert (ran.code, ran.err) == (0, "")
    assert "array      --array=0-6%3 (local)" in ran.out
    assert "nothing was made or submitted" in ran.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["study.yaml", "train.py"]


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
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Launching, leaving, stopping, going on


def test_launch_returns_while_a_pipe_is_read(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """`sweep launch | head -1` ends although the trainings go on: they do not hold the pipe."""
    path = write_toy(tmp_path, trials=2, command=gated(tmp_path))
    script = f"set -o pipefail; {shlex.quote(sys.executable)} -m sweep launch {path} | head -1"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=sweep_environment(runs, {"SWEEP_STORAGE": fresh_url}),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"study toy: 2 trials, in {runs}/toy\n"
    wait_for(lambda: steps_of(runs, "toy", 0) > 0, "the training, which goes on")
    assert sweep("stop").code == 0
    assert wait_until_gone(runs, 60.0) == []


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


def type_ctrl_c(
    arguments: list[str], cwd: Path, env: dict[str, str], ready: Callable[[str], bool]
) -> tuple[int, str]:
    """Run sweep in a terminal and type Ctrl-C once its text is ``ready``; return code and text."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in a background job
        os.chdir(cwd)
        os.execve(sys.executable, [sys.executable, "-m", "sweep", *arguments], env)
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux's way to say that the other end is closed
            while part := os.read(terminal, 65536):
                parts.append(part)

    def text() -> str:
        return b"".join(parts).decode("utf-8", "replace")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for(lambda: ready(text()), "the study to run")
        os.write(terminal, b"\x03")
        wait_for(lambda: has_ended(pid), "the command to end")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        os.close(terminal)
        reader.join(10)
    return os.waitstatus_to_exitcode(status), text()


def has_ended(pid: int) -> bool:
    """Tell whether a child is a zombie: ended, and not yet waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_stopped_study_goes_on_from_its_checkpoints(
    sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """`stop` ends the trainings, keeping the trials; `launch` takes them up as attempt 2."""
    path = write_toy(tmp_path, trials=3, command=gated(tmp_path))
    assert sweep("launch", path).code == 0
    wait_for(lambda: min(steps_of(runs, "toy", 0), steps_of(runs, "toy", 1)) >= 2, "two steps")
    ran = sweep("stop")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("`sweep launch` takes it up again\n")
    assert wait_until_gone(runs, 60.0) == []
    stopped = json.loads(sweep("status", "--json").out)
    assert (stopped["state"], sum(stopped["counts"].values())) == ("stopped", 3)
    assert stopped["counts"]["complete"] == 0
    (tmp_path / "gate").touch()
    assert sweep("launch", path, "--wait").code == 0
    rows = collected(sweep)
    assert {row["trial"]: row["attempts"] for row in rows} == {0: 2, 1: 2, 2: 1}
    assert all(row["value"] == 1 - (row["params"]["x"] - 0.25) ** 2 - 1 / 6 for row in rows)
    assert re.findall(r"starts at step (\d+)", sweep("logs", "0").out) == ["0", "2"]


def test_drained_study_lets_its_trials_end(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """`stop --drain` starts no further trial; who waits is released; `launch` goes on."""
    path = write_toy(tmp_path, trials=5, command=gated(tmp_path))
    waiting = subprocess.Popen(
        [sys.executable, "-m", "sweep", "launch", str(path), "--wait"],
        cwd=tmp_path,
        env=sweep_environment(runs, sweep.keywords["env"]),  # type: ignore[attr-defined]
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wait_for(lambda: min(steps_of(runs, "toy", 0), steps_of(runs, "toy", 1)) >= 2, "two trials")
    assert sweep("stop", "--drain").code == 0
    (tmp_path / "gate").touch()
    text, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert "draining: 2 complete, 3 waiting" in text
    assert counts(sweep) == {"complete": 2, "waiting": 3}
    ran = sweep("launch", path, "--wait", "--set", "trials=6")
    assert ran.code == 0
    assert "1 trial added" in ran.out
    assert counts(sweep) == {"complete": 6}


def test_rerun_is_reported_later(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """`rerun-best` returns at once; the next call gives the verdict; no trial is added."""
    assert sweep("launch", write_toy(tmp_path), "--wait").code == 0
    first = sweep("rerun-best")
    assert first.code == 0
    assert "it runs; `sweep rerun-best` reports once it has ended" in first.out
    wait_for(lambda: (runs / "toy/reruns/1/exit.json").exists(), "the re-run to end")
    assert wait_until_gone(runs, 60.0) == []
    second = sweep("rerun-best", "--json")
    assert second.code == 0
    got = json.loads(second.out)
    (best,) = collected(sweep, "--top", "1")
    assert (got["verdict"], got["relative_difference"]) == ("reproduced", 0.0)
    assert got["original"] == got["rerun"] == best["value"]
    assert got["differences"] == []
    assert counts(sweep) == {"complete": 4}


def test_rerun_that_differs_exits_with_3(sweep: Sweep, tmp_path: Path) -> None:
    """A training that gives another result each time is told so, with exit code 3."""
    training = TRAINING.replace("score = 1", "score = time.time() % 1000 + 1")
    assert sweep("launch", write_toy(tmp_path, training=training, trials=2), "--wait").code == 0
    ran = sweep("rerun-best", "--wait", "--tolerance", "0")
    assert ran.code == 3
    assert re.search(r"verdict +differs", ran.out)


@pytest.mark.parametrize("where", ["runs", "folder"])
def test_hostile_names(sweep: Sweep, tmp_path: Path, where: str) -> None:
    """Paths with blanks, quotes, `$()`, `%`, braces, unicode and newlines are just names."""
    folder = tmp_path / (HOSTILE if where == "folder" else "plain")
    runs = tmp_path / (HOSTILE if where == "runs" else "runs")
    name = f"{HOSTILE}.yaml" if where == "folder" else "study.yaml"
    path = write_toy(folder, file=name, trials=2)
    try:
        ran = sweep("launch", path, "--wait", "--runs", runs, cwd=folder)
        assert ran.code == 0, ran.err
        assert len(collected(sweep, "--runs", str(runs))) == 2
        again = sweep("rerun-best", "--wait", "--json", "--runs", runs)
        assert (again.code, json.loads(again.out)["verdict"]) == (0, "reproduced")
        assert "starts at step 0" in sweep("logs", "0", "--runs", runs).out
    finally:
        stop_runs(runs)
    assert [p for p in tmp_path.rglob("pwned") if p.name == "pwned"] == []


# What cannot work


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("[python, nope.py, '{params}']", "command: nope.py does not exist in "),
        ("[no-such-program, '{params}']", "command: no program named no-such-program on PATH."),
        ("[./train.py, '{params}']", "command: ./train.py cannot be executed"),
        ("[python, train.py, '{lr}']", "lr"),
    ],
)
def test_command_that_cannot_start_makes_nothing(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str, command: str, text: str
) -> None:
    """What is seen to be missing is said before a row or a folder is made."""
    path = write_toy(tmp_path, command=command)
    for arguments in (["launch", path], ["check", path]):
        ran = sweep(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert text in ran.err
    assert not runs.exists()
    assert count_studies(fresh_url) == 0


def hold(sweep: Sweep, path: Path) -> Ran:
    """Launch a study of which nothing can come, and check that it is held after two trials."""
    ran = sweep("launch", path, "--wait")
    assert ran.code == 1
    assert "study toy: held: 2 failed, 4 waiting" in ran.out
    assert "correct the command or the study file; then `sweep launch` goes on" in ran.out
    assert counts(sweep) == {"failed": 2, "waiting": 4}
    return ran


def test_program_that_the_system_cannot_run(sweep: Sweep, tmp_path: Path) -> None:
    """A program that fails at its start holds the study, naming it and the likely cause."""
    (tmp_path / "broken").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "broken").chmod(0o755)
    ran = hold(sweep, write_toy(tmp_path, trials=6, command="[./broken, '{params}']"))
    # The frozen copy is what was started.
    assert re.search(rf"2 failed: Not a program: {tmp_path}/runs/toy/code/\w+/broken\.", ran.out)
    assert "Does its first line start with #!?" in ran.out


def test_metric_that_is_never_reported(sweep: Sweep, tmp_path: Path) -> None:
    """A training that ends well without its metric has failed; corrected, the study goes on."""
    silent = "[python, train.py, --x, '{x}', --steps, '0']"
    ran = hold(sweep, write_toy(tmp_path, trials=6, command=silent))
    assert "ended well, but never reported score" in ran.out
    again = sweep("launch", write_toy(tmp_path, trials=6), "--wait")
    assert again.code == 0
    assert counts(sweep) == {"complete": 6}


def test_failing_code_shows_its_log(sweep: Sweep, tmp_path: Path) -> None:
    """A typo burns two trials, and its traceback's end is shown."""
    path = write_toy(tmp_path, trials=6, training="import nope\n")
    ran = hold(sweep, path)
    assert "2 failed: exit code 1: ModuleNotFoundError: No module named 'nope'" in ran.out
    assert "    | ModuleNotFoundError: No module named 'nope'" in ran.out


def test_objective_that_is_no_number(sweep: Sweep, tmp_path: Path) -> None:
    """NaN is failed and never best; a study with nothing else has failed."""
    command = "[python, train.py, --x, '{x}', --value, nan]"
    ran = sweep("launch", write_toy(tmp_path, command=command), "--wait")
    assert ran.code == 1
    assert "4 failed: the objective is not a finite number (nan)" in ran.out
    assert collected(sweep) == []
    (row, *_) = collected(sweep, "--state", "failed")
    assert (row["rank"], row["value"]) == (None, None)
    again = sweep("rerun-best")
    assert again.code == 2
    assert "No trial of toy is complete" in again.err


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite:///x.db", "SQLite"),
        ("mysql://me:s3cret@host/db", "PostgreSQL"),
        ("nonsense", "PostgreSQL"),
    ],
)
def test_database_that_will_not_do(
    sweep: Sweep, runs: Path, tmp_path: Path, url: str, text: str
) -> None:
    """Anything but PostgreSQL is refused with a reason, and without the password."""
    ran = sweep("launch", write_toy(tmp_path), env={"SWEEP_STORAGE": url})
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert "s3cret" not in ran.err
    assert sorted(p.name for p in tmp_path.iterdir()) in (
        ["study.yaml", "train.py"],
        ["runs", "study.yaml", "train.py"],
    )
    assert not (runs / "toy").exists()


def test_runs_folder_that_is_a_file(sweep: Sweep, tmp_path: Path) -> None:
    """A file in the way of the runs folder is named."""
    (tmp_path / "file").write_text("")
    path = write_toy(tmp_path)
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        ran = run_sweep("launch", path, runs=place, cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "")
        assert str(tmp_path / "file") in ran.err


def test_json_of_launch(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """`launch --json` says what was made and submitted, and nothing else on standard output."""
    ran = sweep("launch", write_toy(tmp_path), "--json")
    assert ran.code == 0
    got = json.loads(ran.out)
    assert (got["name"], got["created"], got["added"], got["submitted"]) == ("toy", True, 4, True)
    assert (got["wave"]["size"], got["wave"]["throttle"]) == (4, 2)
    assert wait_until_gone(runs, 60.0) == []
    assert counts(sweep) == {"complete": 4}
    assert find_processes(runs) == []
