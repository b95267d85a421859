"""Waves that fit what the site allows: exactly N whatever the limits, and K kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.storage.connection import Database
from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.test_launch import (
    FROM_OUTPUT,
    no_elements,
    train,
    train_until,
    watch,
    wrap_sbatch,
)
from tests.cluster.user import User

pytestmark = pytest.mark.slurm


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.parent.name}-{tmp_path.name}").leaving_nothing() as u:
        yield u


@pytest.fixture
def url(fresh_url: str) -> dict[str, str]:
    return {"SWEEP_STORAGE": fresh_url}


def end(
    user: User,
    name: str,
    trials: int,
    parallel: int,
    timeout_s: float = 300,
    gate: Path | None = None,
) -> set[str]:
    """Wait until exactly N trials are complete; return the arrays that it took.

    Args:
        gate: For which the trials wait; a short array can be missed by watching.
    """
    most, arrays = watch(user, no_elements(user), timeout_s, gate)
    assert most <= parallel
    counts = user.wait_state(name, "finished")["counts"]
    assert counts["complete"] == trials == sum(counts.values())
    return arrays


def test_max_submit_jobs_of_a_qos(user: User, url: dict[str, str]) -> None:
    """50 jobs at once: a wave of 48 and its finaliser; each task pulls trial after trial."""
    gate = user.folder / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done; echo value=$0"
    path = user.study(
        "small",
        ["/bin/sh", "-c", wait, "{x}"],
        objective=FROM_OUTPUT,
        trials=100,
        max_parallel=8,
        slurm={"qos": "small"},
    )
    assert "--array=0-47%8" in user.sweep("launch", path, env=url).stdout
    assert len(end(user, "small", 100, 8, gate=gate)) == 1


@pytest.mark.parametrize(
    "options", [{"service": {"partition": "short", "time": "1h"}}, {"qos": "brief"}]
)
def test_short_partitions_and_qos(user: User, options: dict[str, Any]) -> None:
    """Database and finaliser ask for no more than they may, else they would wait for ever."""
    path = user.study(
        "brief",
        train(0),
        objective=FROM_OUTPUT,
        trials=4,
        max_parallel=2,
        tasks=2,
        trials_per_task=1,
        slurm=options,
        resources={"time": "2min"},
    )
    said = user.sweep("launch", path)
    assert "Slurm allows no more there" in said.stdout + said.stderr
    counts = user.wait_state("brief", "finished", timeout_s=240)["counts"]
    assert counts["complete"] == 4 == sum(counts.values())


def test_waves_follow_each_other(user: User, url: dict[str, str]) -> None:
    """Where tasks take one trial each, the finaliser submits wave after wave."""
    path = user.study(
        "waves",
        train(0),
        objective=FROM_OUTPUT,
        trials=9,
        max_parallel=4,
        tasks=4,
        trials_per_task=1,
    )
    assert "--array=0-3%4" in user.sweep("launch", path, env=url).stdout
    end(user, "waves", 9, 4)
    with closing(Database(url["SWEEP_STORAGE"])) as db:  # a short array can be missed by watching
        assert db.execute("SELECT count(DISTINCT job) FROM sweep_attempt") == [(3,)]


def test_the_account_charged_by_default_counts(user: User) -> None:
    """Another account's limits (20 queued, 2 running) hold only where it is charged."""
    given = {"objective": FROM_OUTPUT, "trials": 40, "max_parallel": 10}
    path = user.study("mine", train(0), **given)
    assert "--array=0-39%10" in user.sweep("launch", path, "--dry-run").stdout
    path = user.study("theirs", train(0), slurm={"account": "proj2"}, **given)
    shown = user.sweep("launch", path, "--dry-run").stdout
    assert "--array=0-17%10" in shown
    assert "jobs queued: 20, jobs running: 2" in shown


def test_max_array_size(user: User) -> None:
    """An array has MaxArraySize elements at most."""
    path = user.study("many", train(0), objective=FROM_OUTPUT, trials=1500, max_parallel=16)
    assert "--array=0-1000%16" in user.sweep("launch", path, "--dry-run").stdout


def test_over_the_limit_all_the_same_shrinks(user: User, url: dict[str, str]) -> None:
    """Other jobs of the user's fill the QOS: the wave shrinks until it fits, in few tries."""
    options = ["--output=/dev/null", "--qos=small", "--array=0-39%1"]
    other = user.cluster.submit("sleep 600", *options)
    env = url | wrap_sbatch(user, f'echo "$@" >> {user.folder}/asked\nexec "$real" "$@"')
    path = user.study(
        "shrinks",
        train(0),
        objective=FROM_OUTPUT,
        trials=30,
        max_parallel=4,
        slurm={"qos": "small"},
    )
    done = user.sweep("launch", path, env=env)
    assert "QOSMaxSubmitJobPerUserLimit" in done.stderr
    assert "--array=0-6%4" in done.stdout  # 30, 15, 7
    arrays = (user.folder / "asked").read_text().count("--array=0-")
    assert arrays <= 4
    user.cluster.run(["scancel", other], check=True)
    assert user.wait_state("shrinks", "finished")["counts"]["complete"] == 30


def test_nodes_that_may_not_submit_are_found_out(user: User, url: dict[str, str]) -> None:
    """The finaliser fails, status says so, and launch queues the waves as a chain."""
    refuse = "if [ -n \"$SWEEP_JOB\" ]; then echo 'sbatch: error: Access denied' >&2; exit 1; fi\n"
    env = url | wrap_sbatch(user, refuse + 'exec "$real" "$@"')
    gate = user.folder / "gate"
    path = user.study(
        "chain",
        train_until(gate),
        objective=FROM_OUTPUT,
        trials=8,
        max_parallel=2,
        tasks=3,
        trials_per_task=1,
    )
    user.sweep("launch", path, env=env)
    gate.touch()
    wait_for(lambda: no_elements(user)(), 60, "the first wave to end")
    status = user.status("chain")
    assert (status["state"], status["counts"]["complete"]) == ("idle", 3)
    assert any(
        "the finaliser could not submit the next wave" in note and "Access denied" in note
        for note in status["notes"]
    )
    gate.unlink()
    user.sweep("launch", path, env=env)
    # 3 and 2 tasks for the 5 trials that are left; with as many as K to spare: 3, 3 and 1.
    assert len(end(user, "chain", 8, 2, gate=gate)) == 3
    user.wait_empty()


@pytest.mark.long
def test_alloc_nodes_of_a_partition(user: User, url: dict[str, str]) -> None:
    """Where the partition says that nodes may not submit, the chain is queued at once."""
    update = ["scontrol", "update", "PartitionName=gpu"]
    path = user.study(
        "alloc",
        train(0),
        objective=FROM_OUTPUT,
        slurm={"partition": "gpu"},
        trials=8,
        max_parallel=2,
        tasks=3,
        trials_per_task=1,
    )
    try:
        user.cluster.run([*update, "AllocNodes=elsewhere"], check=True)
        done = user.sweep("launch", path, env=url, code=1)
        assert "Access/permission denied" in done.stderr and "AllocNodes" in done.stderr
        user.cluster.run([*update, f"AllocNodes={user.cluster.layout.host},localhost"], check=True)
        user.sweep("launch", path, env=url)
        names = {row[1] for row in user.queue()}
        assert len(end(user, "alloc", 8, 2) | names) >= 4
    finally:
        user.cluster.run([*update, "AllocNodes=ALL"], check=True)
    user.wait_empty()


@pytest.mark.long
@pytest.mark.parametrize("limit", ["max_array_size", "max_submit"])
def test_3000_trials(user: User, url: dict[str, str], limit: str) -> None:
    """3,000 trials of a one-line command with MaxArraySize 1001, and with 50 jobs at once."""
    options = {"qos": "small"} if limit == "max_submit" else {}
    path = user.study(
        limit,
        ["/bin/echo", "value={x}"],
        objective=FROM_OUTPUT,
        trials=3000,
        max_parallel=16,
        slurm=options,
    )
    user.sweep("launch", path, env=url)
    end(user, limit, 3000, 16, 1500)
