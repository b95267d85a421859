"""``sweep stop``, at once, drained and of single trials, and the launch that goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.commands import collected, counts, gated, steps_of, wait_for
from tests.conftest import Sweep, sweep_environment
from tests.processes import wait_until_gone
from tests.toys import write_toy
from tests.waiting import PATIENCE_S


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
    assert wait_until_gone(runs) == []
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
    text, _ = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 1
    assert "draining: 2 complete, 3 waiting" in text
    assert counts(sweep) == {"complete": 2, "waiting": 3}
    ran = sweep("launch", path, "--wait", "--set", "trials=6")
    assert ran.code == 0
    assert "1 trial added" in ran.out
    assert counts(sweep) == {"complete": 6}


def test_single_trials_are_cancelled_and_the_study_goes_on(
    sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """One that runs leaves, one that waits is cancelled at once; its neighbour notices nothing."""
    path = write_toy(tmp_path, trials=5, command=gated(tmp_path))
    assert sweep("launch", path).code == 0
    wait_for(lambda: min(steps_of(runs, "toy", 0), steps_of(runs, "toy", 1)) >= 2, "two steps")
    ran = sweep("stop", "--trial", "9,4")
    assert (ran.code, "no trial 9" in ran.err) == (2, True)
    assert counts(sweep) == {"running": 2, "waiting": 3}
    ran = sweep("stop", "toy", "--trial", "0", "--trial", "3-4")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "trial 0: is told to leave, and has 1 min for it; it is cancelled then",
        "trial 3: cancelled",
        "trial 4: cancelled",
    ]
    wait_for(lambda: counts(sweep).get("cancelled") == 3, "trial 0 to leave")
    wait_for(lambda: steps_of(runs, "toy", 2) >= 2, "its task to pull trial 2")
    assert steps_of(runs, "toy", 1) == 2
    (tmp_path / "gate").touch()
    wait_for(lambda: counts(sweep) == {"complete": 2, "cancelled": 3}, "the others to end")
    rows = {row["trial"]: row for row in collected(sweep)}
    assert {number: row["attempts"] for number, row in rows.items()} == {1: 1, 2: 1}
    ran = sweep("stop", "--trial", "0,1")
    assert ran.out.splitlines() == [
        "trial 0: cancelled already (cancelled by `sweep stop --trial`); nothing to cancel",
        "trial 1: complete already; nothing to cancel",
    ]
    assert "study toy: all trials have ended" in sweep("launch", path).out
    assert sweep("launch", path, "--retry", "cancelled", "--wait").code == 0
    assert counts(sweep) == {"complete": 5}
