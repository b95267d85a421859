"""sweep is upgraded while jobs of a study wait in Slurm's queue: they outlive it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.test_launch import FROM_OUTPUT
from tests.cluster.test_moves import gated, running
from tests.cluster.user import User
from tests.e2e.test_upgrade import HERE, PARTS, ROOT, install

pytestmark = [pytest.mark.slurm, pytest.mark.long]


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The cluster's user, in a folder of his own; his jobs are cancelled afterwards."""
    with User(slurm, slurm.home / tmp_path.name).leaving_nothing() as someone:
        yield someone


def test_queued_jobs_outlive_an_upgrade(user: User) -> None:
    """Elements, finaliser and database's job were queued by the version before; one task runs.

    That ends as it began; the others, and the finaliser, are the new version's.
    """
    site = user.folder / "site"
    site.symlink_to(install(HERE, user.folder / "old"))
    new = user.folder / "new"
    for part in PARTS:
        shutil.copytree(ROOT / part, new / part, ignore=shutil.ignore_patterns("__pycache__"))
    gate, env = user.folder / "gate", {"PYTHONPATH": str(site)}
    path = user.study(
        "upgraded", gated(gate), objective=FROM_OUTPUT, trials=4, max_parallel=1, trials_per_task=1
    )
    user.sweep("launch", path, env=env)
    wait_for(lambda: running(user, "upgraded") == 1, 120, "a trial to run")
    waiting = [row for row in user.queue() if "_" in row[0] and row[2] == "PENDING"]
    assert len(waiting) == 3, user.explain()

    swapped = user.folder / "swapped"
    swapped.symlink_to(new)
    swapped.replace(site)
    refused = user.sweep("launch", path, "--set", "trials=6", env=env, code=1)
    assert "an older version of sweep serve the study 'upgraded'" in refused.stderr
    gate.touch()
    status = user.wait_state("upgraded", "finished", timeout_s=600)
    assert status["counts"]["complete"] == 4
    assert [trial["attempts"] for trial in user.trials("upgraded")] == [1] * 4
    wait_for(lambda: not user.queue(), 300, "the finaliser and the database's job to end")

    user.sweep("launch", path, "--set", "trials=6", env=env)
    status = user.wait_state("upgraded", "finished", timeout_s=600)
    assert status["counts"]["complete"] == 6
