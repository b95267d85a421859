"""A sampler and a pruner of the user's own through real tasks: frozen, held where they fail."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import Scene, kill
from tests.search.test_hub import commit, git

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
def test_one_of_optunahub(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> None:
    """Fetched at launch; its tasks, and later launches, need no registry."""
    registry = tmp_path / "registry"
    registry.mkdir()
    git(registry, "init", "--quiet", "--initial-branch=main")
    sampler = CODE.replace("BREAKS", "pass").partition("class High")[0]
    head = commit(registry, {"samplers/steps/__init__.py": sampler})
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=2, parallel=1, steps=2)
    scene.write()
    text = scene.file.read_text()
    named = f'{{type: "optunahub:steps", size: 0.1, time_limit: 5min, registry: {registry}}}'
    scene.file.write_text(text.replace("sampler: random", f"sampler: {named}"))
    environ = {**scene.env, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    launched = sweep("launch", scene.file.name, env=environ)
    assert launched.code == 0 and head in launched.out + launched.err, launched
    scene.wait()
    shutil.rmtree(registry)
    shutil.rmtree(tmp_path / "cache")
    scene.file.write_text(scene.file.read_text().replace("trials: 2", "trials: 4"))
    launched = sweep("launch", scene.file.name, env=environ)
    assert launched.code == 0, launched
    scene.wait()
    rows = collected(scene)
    assert [round(rows[n]["params"]["lr"], 6) for n in range(4)] == [0.1, 0.2, 0.3, 0.4]


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
