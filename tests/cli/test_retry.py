"""``sweep launch --retry``: trials that have ended are given back, with the code as it is now."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sweep.storage.connection import Database
from tests.cli.commands import collected, counts, gated, steps_of, wait_for
from tests.conftest import Sweep, sweep_environment
from tests.toys import TRAINING, write_toy

BROKEN = TRAINING.replace(
    "reporter = Reporter()", "assert flags.kind == 'a', 'kind b is broken'\nreporter = Reporter()"
)
# After its second step: there is a checkpoint by then.
BREAKS_LATE = TRAINING.replace(
    "    # The test decides",
    "    assert flags.kind == 'a' or step < 1, 'kind b is broken'\n    # The test decides",
)
SHORT_OF_MEMORY = TRAINING.replace(
    "reporter = Reporter()",
    "if flags.kind == 'b':\n    raise MemoryError('cannot allocate')\nreporter = Reporter()",
)


def kinds(sweep: Sweep) -> dict[str, list[int]]:
    """Return the trials of each kind, whatever their state."""
    found: dict[str, list[int]] = {"a": [], "b": []}
    every = ("waiting", "running", "complete", "pruned", "failed", "cancelled")
    for row in collected(sweep, *(word for state in every for word in ("--state", state))):
        found[row["params"]["kind"]].append(row["trial"])
    return {kind: sorted(numbers) for kind, numbers in found.items()}


def test_failed_trials_run_again_with_the_new_code(
    sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """Same numbers, N unchanged, in new folders; each command says that they were retried."""
    path = write_toy(tmp_path, trials=6, training=BROKEN)
    assert sweep("launch", path, "--wait").code == 0
    failed = kinds(sweep)["b"]
    assert failed and counts(sweep) == {"complete": 6 - len(failed), "failed": len(failed)}
    values = {row["trial"]: row["value"] for row in collected(sweep)}
    log = runs / "toy" / "trials" / f"{failed[0]:05d}" / "attempts" / "1" / "log.txt"
    old = log.read_text()
    (tmp_path / "train.py").write_text(TRAINING)

    ran = sweep("launch", path, "--retry", "failed", "--wait")
    assert ran.code == 0, ran.err
    listed = ", ".join(map(str, failed))
    assert re.search(rf"retried: trials? {listed}, as (its|their) next attempts?\n", ran.out)
    assert counts(sweep) == {"complete": 6}
    rows = {row["trial"]: row for row in collected(sweep)}
    assert {n: row["attempts"] for n, row in rows.items()} == {
        n: 2 if n in failed else 1 for n in range(6)
    }
    assert {n for n, row in rows.items() if row.get("retried") == 1} == set(failed)
    assert {n: rows[n]["value"] for n in values} == values
    assert rows[failed[0]]["code"] != rows[next(iter(values))]["code"]
    assert (log.read_text(), log.parent.parent.joinpath("2", "log.txt").exists()) == (old, True)
    notes = json.loads(sweep("status", "--json").out)["notes"]
    assert any(f"{listed} w" in note and "retried" in note for note in notes)
    assert sweep("report", "-o", "page.html").code == 0
    assert "retried from nothing after attempt 1" in (tmp_path / "page.html").read_text()
    again = sweep("launch", path, "--retry", "failed")
    assert (again.code, "there is no such trial" in again.out) == (0, True)
    assert "all trials have ended" in again.out


def test_retry_begins_from_nothing_unless_told(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """What an earlier attempt reported does not count then; with --resume it does."""
    path = write_toy(
        tmp_path, trials=6, training=BREAKS_LATE, command="[python, train.py, '{params}']"
    )
    assert sweep("launch", path, "--wait").code == 0
    first, second = kinds(sweep)["b"][:2]
    (tmp_path / "train.py").write_text(TRAINING)
    assert sweep("launch", path, "--retry", str(first), "--wait").code == 0
    assert sweep("launch", path, "--retry", str(second), "--resume", "--wait").code == 0

    def starts(trial: int) -> list[str]:
        return re.findall(r"starts at step (\d+)", sweep("logs", str(trial)).out)

    assert (starts(first), starts(second)) == (["0", "0"], ["0", "2"])
    rows = {row["trial"]: row for row in collected(sweep)}
    assert (rows[first]["state"], rows[second]["state"]) == ("complete", "complete")
    assert steps_of(runs, "toy", first, 2) == 3
    assert steps_of(runs, "toy", second, 2) == 1


def test_what_is_refused_changes_nothing(sweep: Sweep, tmp_path: Path) -> None:
    """A trial that is not there, one with a result, memory at the same size, words, flags."""
    path = write_toy(tmp_path, trials=6, training=SHORT_OF_MEMORY)
    ran = sweep("launch", path, "--retry", "failed")
    assert (ran.code, "no study 'toy' yet" in ran.err) == (2, True)
    assert sweep("launch", path, "--wait").code == 0
    before = counts(sweep)
    short, complete = kinds(sweep)["b"], kinds(sweep)["a"]
    for words, said in (
        (["--retry", "77"], "no trial 77"),
        (["--retry", str(complete[0])], "is complete; a retry takes the result back"),
        (["--retry", "oom"], "ran out of memory, and its resources are as they were"),
        (["--retry", f"failed,{complete[0]}"], "a retry takes the result back"),
        (["--retry", "fialed"], "Did you mean failed"),
        (["--retry", "failed", "--dry-run"], "--dry-run shows a launch"),
        (["--resume"], "--resume belongs to --retry"),
        (["--force"], "--force belongs to --retry"),
    ):
        ran = sweep("launch", path, *words)
        assert ran.code == 2 and said in ran.err.replace("their", "its"), (words, ran)
    assert counts(sweep) == before == {"complete": len(complete), "failed": len(short)}
    assert all(row["attempts"] <= 2 for row in collected(sweep, "--state", "failed"))

    ran = sweep("launch", path, "--retry", "oom", "--set", "resources.memory=2G", "--wait")
    assert ran.code == 0 and "retried: trial" in ran.out
    assert counts(sweep) == before  # it fails as before: this code does
    (tmp_path / "train.py").write_text(TRAINING)
    assert sweep("launch", path, "--retry", "oom", "--force", "--wait").code == 0
    assert counts(sweep) == {"complete": 6}
    ran = sweep("launch", path, "--retry", str(complete[0]), "--force", "--wait")
    assert ran.code == 0
    row = next(row for row in collected(sweep) if row["trial"] == complete[0])
    assert (row["attempts"], row["retried"]) == (2, 1)


def test_retry_while_the_array_lives(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """It changes rows alone: the tasks there take the trial, and no second array comes.

    The trial is given back although the study is not proven yet, and its failure not final.
    """
    command = gated(tmp_path)[:-1] + ", --kind, '{kind}']"
    points = "[{x: 0.1, kind: b}, {x: 0.2, kind: a}, {x: 0.3, kind: a}]"
    path = write_toy(
        tmp_path, trials=6, parallel=2, command=command, training=BROKEN, points=points
    )
    assert sweep("launch", path).code == 0
    begun = {"failed": 1, "running": 2, "waiting": 3}
    wait_for(lambda: counts(sweep) == begun, "two trials of kind a")
    failed = [row["trial"] for row in collected(sweep, "--state", "failed")]
    running = [row["trial"] for row in collected(sweep, "--state", "running")]
    assert (failed, running) == ([0], [1, 2])
    (tmp_path / "train.py").write_text(TRAINING)
    ran = sweep("launch", path, "--retry", f"failed,{running[0]}", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert (told["retried"], told["submitted"]) == (failed, False)
    assert any(f"trial {running[0]} runs (attempt 1)" in note for note in told["notes"])
    (tmp_path / "gate").touch()
    wait_for(lambda: counts(sweep) == {"complete": 6}, "the tasks to end")
    with closing(Database(fresh_url)) as db:
        jobs = db.execute("SELECT DISTINCT job FROM sweep_attempt")
    assert len(jobs) == 1


def test_a_launch_that_is_killed_is_repeated(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """Killed as soon as its rows are written: the same command goes on, once."""
    path = write_toy(tmp_path, trials=6, training=BROKEN)
    assert sweep("launch", path, "--wait").code == 0
    failed = kinds(sweep)["b"]
    (tmp_path / "train.py").write_text(TRAINING)
    environ = sweep_environment(runs, sweep.keywords["env"])  # type: ignore[attr-defined]
    with closing(Database(fresh_url)) as db:
        child = subprocess.Popen(
            [sys.executable, "-m", "sweep", "launch", str(path), "--retry", "failed"],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        given_back = "SELECT COUNT(*) FROM trials WHERE state <> 'COMPLETE'"
        attempts = "SELECT COUNT(*) FROM sweep_attempt WHERE outcome = 'retried'"
        wait_for(lambda: db.execute(attempts) != [(0,)], "the rows to be written")
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert db.execute(given_back)[0][0] <= len(failed)
    ran = sweep("launch", path, "--retry", "failed", "--wait")
    assert ran.code == 0, ran.err
    assert counts(sweep) == {"complete": 6}
    rows = {row["trial"]: row for row in collected(sweep)}
    assert {n for n, row in rows.items() if row.get("retried")} == set(failed)
    assert {rows[n]["attempts"] for n in failed} == {2}
