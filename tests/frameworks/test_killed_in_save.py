"""Killed by SIGKILL at random moments of a framework's save, a trial repeats one interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Sweep
from tests.frameworks import scene
from tests.frameworks.scene import KILLER, Scene

TRIALS = 20
# (package, example, metric, steps between two saves, last step, most operations before the kill)
CASES = {
    "lightning": ("lightning", "lightning", "val_loss", 1, 5, 40),
    "transformers": ("transformers", "transformers", "eval_loss", 8, 48, 45),
    "dcp": ("torch", "fsdp", "val_loss", 1, 5, 60),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_all_trials_complete(sweep: Sweep, tmp_path: Path, runs: Path, name: str) -> None:
    """20 trials with one kill each: all complete, at most one save interval repeated."""
    package, example, metric, interval, last, within = CASES[name]
    scene.need(package)
    study = Scene(sweep, tmp_path, runs, example, metric)
    study.sets += [
        f"environment.env.PYTHONPATH={KILLER}",
        f"environment.env.KILL_WITHIN={within}",
        *(f"trials={TRIALS}", "max_parallel=2", "duplicates=keep"),
    ]
    study.launch()
    trials = study.trials()
    assert [trial["state"] for trial in trials] == ["complete"] * TRIALS, study.logs()
    killed = 0
    for trial in trials:
        number = trial["trial"]
        assert trial["attempts"] in (1, 2), study.logs()
        first = study.steps(1, number)
        rest = study.steps(2, number) if trial["attempts"] == 2 else []
        assert (rest or first)[-1] == last
        if rest:
            killed += 1
            assert first[-1] - interval < rest[0] <= first[-1] + interval
    # Some training may have ended before the operation that was drawn.
    assert killed >= TRIALS * 3 // 4, f"only {killed} of {TRIALS} were killed"
