"""A study to which a notebook asks and tells with Optuna's own API."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tests.conftest import Sweep, run_sweep
from tests.toys import write_toy

DONE, FAILED, DIFFERS = 0, 1, 3


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """Run the command line on a database of the test's own, on the server that all share."""
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


def status(sweep: Sweep) -> dict[str, Any]:
    ran = sweep("status", "--json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def notebook(url: str) -> optuna.Study:
    return optuna.load_study(
        study_name="toy", storage=url.replace("postgresql:", "postgresql+psycopg2:")
    )


def add(study: optuna.Study, value: float, state: TrialState = TrialState.COMPLETE) -> None:
    """Add a trial that nobody of sweep's has run."""
    first = study.trials[0]
    study.add_trial(
        create_trial(
            state=state,
            params=first.params,
            distributions=first.distributions,
            value=value if state == TrialState.COMPLETE else None,
            intermediate_values={3: value},
        )
    )


def test_all_commands_stand_a_notebooks_trials(
    tmp_path: Path, sweep: Sweep, fresh_url: str
) -> None:
    """Infinite values, more trials than N, every state, one that is never told: nothing crashes."""
    path = write_toy(tmp_path, trials=3)
    assert sweep("launch", path, "--wait").code == 0
    study = notebook(fresh_url)
    for value in (float("inf"), float("-inf"), 2.0):
        add(study, value)
    for state in (TrialState.FAIL, TrialState.PRUNED):
        add(study, float("inf"), state)
    study.ask()  # and never told
    found = status(sweep)
    counts = {"complete": 6, "failed": 1, "pruned": 1, "running": 1, "waiting": 0, "cancelled": 0}
    assert (found["state"], found["counts"], found["trials"]) == ("finished", counts, 3)
    assert (found["best"]["trial"], found["best"]["value"]) == (5, 2.0)
    assert found["notes"] == [
        "1 trial runs that was asked for outside of sweep; no study waits for it",
        "6 trials were added outside of sweep, beyond the study's 3",
    ]
    for code, *command in (
        (DONE, "status"),
        (DONE, "collect"),
        (DONE, "collect", "--long", "--format", "csv"),
        (DONE, "collect", "-o", "x.parquet"),
        (DONE, "report"),
        (DONE, "launch", str(path), "--wait"),  # there is nothing to wait for
        (DONE, "stop"),
        (FAILED, "logs", "5"),
        (DIFFERS, "rerun-best", "--wait"),  # 2.0 was made up
    ):
        ran = sweep(*command)
        assert ran.code == code, (command, ran.out, ran.err)
    assert "8 of 9 trials have ended" in sweep("status").out
    assert status(sweep)["counts"] == counts
    # A higher N counts what is there.
    assert sweep("launch", path, "--wait", "--set", "trials=10").code == 0
    assert status(sweep)["counts"] == {**counts, "complete": 7, "running": 0, "cancelled": 1}


def test_a_study_ends_without_what_a_notebook_took(
    tmp_path: Path, sweep: Sweep, fresh_url: str
) -> None:
    """A waiting trial that was asked for and never told is cancelled when all others have ended."""
    gate = tmp_path / "gate"
    command = f"[python, train.py, --x, '{{x}}', --steps, '2', --gate, '{gate}']"
    path = write_toy(tmp_path, trials=3, parallel=1, command=command)
    assert sweep("launch", path).code == 0
    study = notebook(fresh_url)
    waiting = [trial.number for trial in study.trials if trial.state == TrialState.WAITING]
    taken = study.ask()
    assert taken.number in waiting
    gate.touch()
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    found = status(sweep)
    assert found["state"] == "finished"
    assert {name: n for name, n in found["counts"].items() if n} == {"complete": 2, "cancelled": 1}
    (row,) = json.loads(sweep("collect", "--state", "cancelled", "--format", "json").out)
    assert (row["trial"], row["reason"]) == (
        taken.number,
        "asked for outside of sweep, and not told when all other trials had ended",
    )
