"""``sweep launch``: again, dry, through pipes, under hostile names, and what cannot work."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg2
import pytest

from tests.cli.commands import collected, counts, gated, steps_of, wait_for
from tests.conftest import Ran, Sweep, run_sweep, stop_runs, sweep_environment
from tests.processes import wait_until_gone
from tests.toys import TRAINING, write_toy
from tests.waiting import PATIENCE_S

HOSTILE = "a b'c\"d $(touch pwned) `id` %s%j {index} ü;&|*\n#"


def count_studies(url: str) -> int:
    with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM studies")
        return int(cursor.fetchone()[0])  # type: ignore[index]


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
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"study toy: 2 trials, in {runs}/toy\n"
    wait_for(lambda: steps_of(runs, "toy", 0) > 0, "the training, which goes on")
    assert sweep("stop").code == 0
    assert wait_until_gone(runs) == []


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


def test_metric_that_is_printed(sweep: Sweep, tmp_path: Path) -> None:
    """What is printed, and never reported, comes with what reads it; that way the study goes on."""
    prints = "[python, -c, 'print(\"score: {x}\")']"
    ran = hold(sweep, write_toy(tmp_path, trials=6, command=prints))
    advice = "' names score: objective.from: {stdout: 'score: ([-+0-9.eE]+)'} reads it; else "
    assert advice in ran.out
    assert advice in sweep("status").out
    path = write_toy(tmp_path, trials=6, command=prints)
    reads = "metric: score, from: {stdout: 'score: ([-+0-9.eE]+)'}"
    path.write_text(path.read_text().replace("metric: score", reads))
    again = sweep("launch", path, "--wait")
    assert again.code == 0, again.err
    assert counts(sweep) == {"complete": 6}


def test_metric_of_a_wrong_name(sweep: Sweep, tmp_path: Path) -> None:
    """As long as no trial has told it, the objective's name is corrected in the study file, and
    the trials that ended without it are tried again; then it stays."""
    path = write_toy(tmp_path, trials=2)
    wrong = sweep("launch", path, "--wait", "--set", "objective.metric=skore")
    assert wrong.code == 1 and counts(sweep) == {"failed": 2}
    again = sweep("launch", path, "--wait")
    assert 'objective.metric was "skore" and is now "score"' in again.out
    assert "2 trials that had failed are tried again" in again.out
    assert again.code == 0 and counts(sweep) == {"complete": 2}
    refused = sweep("launch", path, "--set", "objective.metric=skore")
    assert refused.code == 2 and "differs where it must not" in refused.err


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
    assert wait_until_gone(runs) == []
    assert counts(sweep) == {"complete": 4}
    assert wait_until_gone(runs) == []


def test_a_study_of_gpus_without_one(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """With --cpu it runs where no GPU is, as a study of its own that the first never takes up."""
    training = TRAINING.replace(
        "reporter = Reporter()",
        'assert os.environ["CUDA_VISIBLE_DEVICES"] == ""\nreporter = Reporter()',
    )
    path = write_toy(tmp_path, trials=2, training=training, resources="{gpus: 7}")
    env = {"CUDA_VISIBLE_DEVICES": ""}
    refused = sweep("launch", path, env=env)
    assert refused.code != 0 and "asks for 7 GPU(s)" in refused.err, refused
    ran = sweep("launch", path, "--cpu", "--wait", env={"CUDA_VISIBLE_DEVICES": "0"})
    assert ran.code == 0, ran
    assert counts(sweep) == {"complete": 2}
    assert not (runs / "toy").exists()
    recorded = json.loads((runs / "toy-cpu/manifest.json").read_text())
    assert recorded["execution"]["gpus_per_node"] == 0
    assert recorded["environment"]["variables"]["ROCR_VISIBLE_DEVICES"] == ""
