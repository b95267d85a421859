"""A study on a real Slurm that ends before its last trial: nothing runs on, and N holds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.user import User
from tests.storage.test_budgets import LONG

pytestmark = pytest.mark.slurm


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def test_a_target_ends_the_array(user: User, fresh_url: str) -> None:
    """One trial reaches the target; the others, which would run for an hour, leave with their
    checkpoints; elements that wait are cancelled, no wave follows, and launch says why."""
    env = {"SWEEP_STORAGE": fresh_url}
    script = user.write("goal.py", LONG)
    path = user.study(
        "goal",
        [str(user.bin / "python"), str(script), "{x}"],
        trials=12,
        max_parallel=3,
        objective={"metric": "score", "direction": "maximize"},
        target=0.9,
        points=[{"x": 0.1}, {"x": 0.2}, {"x": 0.95}, *({"x": 0.3} for _ in range(9))],
    )
    user.sweep("launch", path, env=env)
    user.wait_empty(300)
    status = json.loads(user.sweep("status", "goal", "--json", env=env).stdout)
    assert (status["state"], status["reason"]) == (
        "finished",
        "it ended early: its target 0.9 is reached: trial 2 has score 0.95",
    )
    assert (status["counts"]["complete"], status["counts"]["cancelled"]) == (1, 11)
    for number in (0, 1):
        kept = user.runs / f"goal/trials/{number:05}/attempts/1/checkpoints/last"
        assert kept.exists(), user.explain()
    again = user.sweep("launch", path, env=env)
    assert "it has ended early: its target 0.9 is reached" in again.stdout
    user.check_nothing_left()
