"""``track: [mlflow]`` on a real Slurm: the tasks of several nodes write into one database, which a
job serves and a command shows afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.test_launch import FROM_OUTPUT, run_to_its_end, train
from tests.cluster.user import User
from tests.needs import require

pytestmark = [pytest.mark.slurm, pytest.mark.long]


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The cluster's user, in a folder of his own; his jobs are cancelled afterwards."""
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def test_all_nodes_write_into_one_database(user: User) -> None:
    """One run a trial, with what collect says; the address serves a client once jobs are gone. Sent
    again by a command, nothing comes twice."""
    require("mlflow")
    from mlflow.tracking import MlflowClient

    study = user.study(
        "tracked", train(2.0), objective=FROM_OUTPUT, trials=6, max_parallel=3, track=["mlflow"]
    )
    run_to_its_end(user, study, "tracked", 6, 3)
    user.wait_empty(120)
    for path in (user.runs / "tracked/tracking").glob("*.sent"):
        path.unlink()  # as if nobody knew what has been sent: by a command, all of it again
    resent = user.sweep("resend", "tracked", timeout_s=600)
    assert "has everything of 6 trials" in resent.stdout
    client = MlflowClient(user.sweep("mlflow", "--url").stdout.strip())
    experiment = client.get_experiment_by_name("sweep/tracked")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    found = {int(run.data.tags["sweep.trial"]): run.data.metrics["value"] for run in runs}
    assert found == {trial["trial"]: trial["value"] for trial in user.trials("tracked")}
    assert {run.info.status for run in runs} == {"FINISHED"} and len(runs) == 6
    for run in runs:
        assert len(client.get_metric_history(run.info.run_id, "value")) == 1
    user.sweep("db", "stop")
