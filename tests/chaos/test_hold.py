"""A command that cannot work does not burn the study, and once corrected goes through all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import Scene

QUICK = """
import os
open(os.environ["SWEEP_METRICS"], "w").write('{"step": 0, "metrics": {"loss": 1.0}}\\n')
"""


@pytest.mark.parametrize("trials", [16, pytest.param(200, marks=pytest.mark.long)])
def test_a_typo_costs_three_trials(
    trials: int, tmp_path: Path, runs: Path, sweep: Any, fresh_url: str
) -> None:
    """Trials of ``import nope``: held after at most three; corrected, all are complete."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=trials, parallel=4)
    scene.write("python -c 'import nope'", script=QUICK).launch()
    held = scene.wait_state("held")
    scene.wait_for(lambda: not scene.processes())
    held = scene.status()
    assert held["counts"]["failed"] <= 3
    assert held["counts"] == {
        "waiting": trials - held["counts"]["failed"],
        "running": 0,
        "complete": 0,
        "pruned": 0,
        "failed": held["counts"]["failed"],
        "cancelled": 0,
    }
    assert "ModuleNotFoundError: No module named 'nope'" in held["reason"]
    log = Path(held["failures"][0]["log"]).read_text()
    assert log.endswith("ModuleNotFoundError: No module named 'nope'\n")
    shown = sweep("logs", scene.name, held["failures"][0]["trial"], env=scene.env)
    assert "ModuleNotFoundError" in shown.out

    again = sweep("launch", scene.file.name, "--wait", env=scene.env)
    assert (again.code, "ModuleNotFoundError" in again.out) == (1, True), again
    scene.wait_for(lambda: not scene.processes())
    assert scene.status()["counts"]["failed"] <= 3

    scene.write(f"python -S -E {scene.name}-train.py", script=QUICK)
    done = sweep("launch", scene.file.name, "--wait", env=scene.env, timeout_s=300.0)
    assert done.code == 0, done
    found = scene.records()
    assert [record.number for record in found] == list(range(trials))
    assert {record.state for record in found} == {"complete"}
