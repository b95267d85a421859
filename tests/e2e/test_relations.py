"""Relations between parameters through real tasks: nothing against them is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.chaos.scene import Scene, kill

SPACE = """space:
  lr: {type: float, low: 0.1, high: 1.0}
  width: {type: int, low: 1, high: 9}
  inner: {type: int, low: 1, high: width}
  opt: {type: categorical, choices: [sgd, adam]}
  momentum: {type: float, low: 0.0, high: 1.0, when: {opt: sgd}}
fixed: {cap: 8}
where: ["lr * width <= cap / 4", "momentum < lr"]
"""


def is_valid(params: dict[str, Any]) -> bool:
    return bool(
        params["inner"] <= params["width"]
        and params["lr"] * params["width"] <= 2
        and params.get("momentum", -1) < params["lr"]
    )


@pytest.fixture
def scene(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> Scene:
    """A study of five gated trials, two at once, under relations."""
    scene = Scene(
        tmp_path, runs, sweep, fresh_url, trials=5, parallel=2, steps=3, pause_s=0.0, gated=True
    )
    scene.write()
    text = scene.file.read_text().replace("sampler: random", "sampler: tpe")
    space = "space:\n  lr: {type: float, low: 0.1, high: 1.0}\n"
    assert space in text
    scene.file.write_text(text.replace(space, SPACE) + "retry: {max_attempts: 5}\n")
    return scene


def collected(scene: Scene) -> list[dict[str, Any]]:
    done = scene.sweep("collect", scene.name, "--format", "json", env=scene.env)
    assert done.code == 0, done
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


def test_a_study_under_relations(scene: Scene) -> None:
    """With a kill, more trials, a notebook's trial against them, and changed relations."""
    checked = scene.sweep("check", scene.file.name, env=scene.env)
    assert checked.code == 0 and "where     inner <= width" in checked.out
    assert "of the space" in checked.out
    scene.launch()
    victim = scene.wait_for(scene.workers)[0]
    scene.wait_for(scene.trainings)
    kill(victim)
    scene.gate.touch()
    scene.wait()
    scene.launch()  # takes up what the kill has left
    scene.wait()
    rows = collected(scene)
    assert len(rows) == 5 and {row["state"] for row in rows} == {"complete"}
    assert all(is_valid(row["params"]) for row in rows), rows

    # What is enqueued with Optuna's API runs as it was given, and that is said.
    url = str(scene.storage).replace("postgresql:", "postgresql+psycopg2:")
    study = optuna.load_study(study_name=scene.name, storage=url)
    study.enqueue_trial({"lr": 0.9, "width": 9, "inner": 1, "opt": "adam"})
    scene.launch("--set", "trials=9")
    scene.wait()
    rows = collected(scene)
    assert len(rows) == 9
    broken = [row for row in rows if not is_valid(row["params"])]
    assert [row["params"]["width"] for row in broken] == [9], rows
    said = scene.launch("--set", "trials=9")
    why = "breaks where: lr * width <= cap / 4: lr is 0.9, width is 9 and cap is 8"
    assert f"note: trial {broken[0]['trial']}: " in said and why in said

    changed = scene.sweep("launch", scene.file.name, "--set", "where=lr > 0", env=scene.env)
    assert changed.code == 2 and "where was" in changed.err, changed


def test_relations_that_nothing_keeps_to(scene: Scene) -> None:
    """That is refused before anything is made; few are warned of."""
    for command in ("launch", "check"):
        done = scene.sweep(command, scene.file.name, "--set", "where=lr > 2", env=scene.env)
        assert done.code == 2, done
        assert "none of 10000 points by chance keeps to the relations" in done.err
        assert "lr > 2 is broken by 10000 (for example, lr is" in done.err
    assert not scene.root.exists()
    few = scene.sweep("check", scene.file.name, "--set", "where=lr < 0.101", env=scene.env)
    assert few.code == 0 and "of 10000 points by chance" in few.out, few
    plan = scene.sweep(
        "launch", scene.file.name, "--dry-run", "--set", "where=lr < 0.101", env=scene.env
    )
    assert plan.code == 0 and "of 10000 points by chance" in plan.out, plan
