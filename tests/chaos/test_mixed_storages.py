"""Eight processes work on one study at the same time, half of them on Optuna's own storage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from sweep.storage import PostgresStorage
from sweep.storage.url import normalise
from tests.conftest import command_server, fork_server, sweep_environment
from tests.storage.test_optuna_storage import assert_same

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("trials", [4, pytest.param(60, marks=pytest.mark.long)])
def test_eight_processes_on_one_study(trials: int, empty_url: str, tmp_path: Path) -> None:
    """Each waiting trial is taken once, no number twice, and both storages read the same.

    The database holds Optuna's tables alone.
    """
    optunas = RDBStorage(normalise(empty_url))
    study = optuna.create_study(storage=optunas, study_name="mixed")
    waiting = 8 * trials // 2
    for i in range(waiting):  # the other half is made by ask
        study.enqueue_trial({"x": i / waiting})
    kinds = ["ours", "optunas"] * 4
    # Forked in every form: an import of Optuna for each would be most of the work.
    environ = sweep_environment(tmp_path)
    server = command_server() or fork_server("optuna", environ, ["optuna", "sweep.storage"])
    processes = [
        server.start(
            ["tests.chaos.mixed_writer", kind, empty_url, "mixed", str(trials)],
            cwd=str(ROOT),
            environ=environ,
        )
        for kind in kinds
    ]
    said = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, said
    found = study.get_trials()
    assert [trial.number for trial in found] == list(range(8 * trials))
    assert {trial.state for trial in found} <= {TrialState.COMPLETE, TrialState.PRUNED}
    # As many as each was told to run, and each enqueued point once.
    pids = Counter(trial.user_attrs["pid"] for trial in found)
    assert pids == {process.pid: trials for process in processes}
    enqueued = sorted(t.params["x"] for t in found if "fixed_params" in t.system_attrs)
    assert enqueued == [i / waiting for i in range(waiting)]
    for trial in found:
        steps = {step: trial.params["x"] * step for step in range(3)}
        assert trial.intermediate_values.items() <= steps.items()
        last = trial.intermediate_values[max(trial.intermediate_values)]
        assert trial.value == (trial.params["x"] if trial.state == TrialState.COMPLETE else last)
    ours = PostgresStorage(empty_url)
    assert_same(ours.get_all_trials(study._study_id), optunas.get_all_trials(study._study_id))
    ours.database.close()
    optunas.engine.dispose()
