"""A study that is launched under another executor, and a database that a job serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.test_launch import FROM_OUTPUT, no_elements, train, watch
from tests.cluster.user import User

pytestmark = pytest.mark.slurm

__all__ = ["user"]


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The cluster's user, in a folder of his own; his jobs are cancelled afterwards."""
    with User(slurm, slurm.home / tmp_path.name).leaving_nothing() as someone:
        yield someone


def gated(gate: Path) -> list[str]:
    """Return a stand-in for training that waits for a file."""
    code = (
        f"import os, sys, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)\n"
        "print('value=' + sys.argv[1])"
    )
    return ["/usr/bin/python3", "-c", code, "{x}"]


def elements(user: User) -> list[list[str]]:
    """Return the elements of arrays that wait or run: what is completing has ended."""
    return [row for row in user.queue() if "_" in row[0] and row[2] != "COMPLETING"]


def running(user: User, name: str) -> int:
    return int(user.status(name)["counts"]["running"])


def test_while_an_array_lives_on_slurm_the_study_stays(user: User, fresh_url: str) -> None:
    """No local tasks beside it; stopped, it moves at once; then its local array keeps it."""
    env, gate = {"SWEEP_STORAGE": fresh_url}, user.folder / "gate"
    path = user.study("moves", gated(gate), objective=FROM_OUTPUT, trials=6, max_parallel=2)
    user.sweep("launch", path, env=env)
    wait_for(lambda: running(user, "moves") == 2, 90, "two trials to run")
    said = user.sweep("launch", path, "--executor", "local", env=env)
    assert "is at work on Slurm, and goes on there" in said.stderr
    assert ", slurm)" in said.stdout
    assert running(user, "moves") == 2
    user.sweep("stop", "moves", env=env)
    moved = user.sweep("launch", path, "--executor", "local", env=env)
    assert ", local)" in moved.stdout
    assert elements(user) == []
    wait_for(lambda: running(user, "moves") == 2, 60, "two trials to run here")
    said = user.sweep("launch", path, "--executor", "slurm", env=env)
    assert "is at work on this machine, and goes on there" in said.stderr
    assert elements(user) == []
    gate.touch()
    status = user.wait_state("moves", "finished")
    assert status["counts"]["complete"] == 6


def test_db_stop_ends_the_job_that_serves(user: User) -> None:
    """It would start the server again; the study that has ended keeps its results."""
    path = user.study("served", train(0.0), objective=FROM_OUTPUT, trials=2, max_parallel=2)
    user.sweep("launch", path)
    watch(user, no_elements(user), 180)
    jobs = [row[0] for row in user.queue() if row[1].startswith("sweep-db-")]
    assert len(jobs) == 1
    done = user.sweep("db", "stop")
    assert done.stdout == "stopped\n" and f"cancelling job {jobs[0]} on Slurm" in done.stderr
    left = [row for row in user.queue() if row[1].startswith("sweep-db-")]
    assert [row for row in left if row[2] != "COMPLETING"] == []
    assert user.sweep("db", "stop").stdout == "it was not running\n"
    top = json.loads(user.sweep("collect", "--format", "json").stdout)
    assert len(top) == 2
