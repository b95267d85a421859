"""A sampler and a pruner of the user's own through real tasks: frozen, held where they fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import Scene, kill

CODE = """
import optuna

class Steps(optuna.samplers.BaseSampler):
    def __init__(self, size, seed=None):
        self.size = size
    def infer_relative_search_space(self, study, trial):
        return {}
    def sample_relative(self, study, trial, space):
        return {}
    def sample_independent(self, study, trial, name, distribution):
        BREAKS
        return 0.1 + self.size * trial.number

class High(optuna.pruners.BasePruner):
    def prune(self, study, trial):
        return trial.params["lr"] > 0.25
"""
MORE = """pruner: "search:High"
retry: {max_attempts: 5}
"""


def collected(scene: Scene) -> dict[int, dict[str, Any]]:
    done = scene.sweep("collect", scene.name, "--format", "json", env=scene.env)
    assert done.code == 0, done
    return {row["trial"]: row for row in json.loads(done.out)}


@pytest.mark.long
def test_own_sampler_and_pruner(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> None:
    """The code is as it was launched; a fault holds the study; a kill changes nothing."""
    scene = Scene(
        tmp_path, runs, sweep, fresh_url, trials=5, parallel=1, steps=4, gated=True, more=MORE
    )
    scene.write()
    text = scene.file.read_text()
    own = '{type: "search:Steps", size: 0.1, time_limit: 5min}'
    scene.file.write_text(text.replace("sampler: random", f"sampler: {own}"))
    code = tmp_path / "search.py"
    code.write_text(CODE.replace("BREAKS", "assert True, trial.numbre"))
    checked = scene.sweep("check", scene.file.name, env=scene.env)
    assert checked.code == 0 and "search:Steps" in checked.out, checked

    code.write_text(CODE.replace("BREAKS", "raise OSError('too early')"))
    refused = scene.sweep("launch", scene.file.name, env=scene.env)
    assert refused.code == 1 and "OSError: too early" in refused.err, refused
    assert not scene.root.exists()

    code.write_text(CODE.replace("BREAKS", "assert trial.number < 3, 'no more'"))
    scene.launch()
    code.write_text("this is no Python")
    scene.wait_for(scene.trainings)
    kill(scene.wait_for(scene.workers)[0])
    code.write_text(CODE.replace("BREAKS", "assert trial.number < 3, 'no more'"))
    scene.gate.touch()
    scene.wait_for(lambda: not scene.processes())
    scene.launch()  # takes up what the kill has left
    code.write_text("this is no Python")
    state = scene.wait_state("held")
    assert "sampler search:Steps" in json.dumps(state) and "no more" in json.dumps(state)
    scene.wait_for(lambda: not scene.processes())

    code.write_text(CODE.replace("BREAKS", "pass"))
    scene.launch()
    scene.wait()
    rows = collected(scene)
    assert [round(rows[n]["params"]["lr"], 6) for n in range(5)] == [0.1, 0.2, 0.3, 0.4, 0.5]
    states = [rows[n]["state"] for n in range(5)]
    assert states == ["complete", "complete", "pruned", "pruned", "pruned"], rows
