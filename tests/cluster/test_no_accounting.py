"""A cluster that keeps no accounts: whose scancel it was is unknown, and said to be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import studying
from tests.cluster.fixture import own_cluster

pytestmark = pytest.mark.slurm

UNKNOWN = "(scancel; by whom is not known, since the cluster keeps no accounts)"
SMALL = {"time": "20min", "cpus": 2, "memory": "200M"}


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    with own_cluster(nodes=1, accounting=False) as cluster:
        assert "accounting storage is disabled" in cluster.run(["sacct"]).stderr
        yield cluster


def test_a_cancel_is_taken_for_a_wish_of_nobody_knows_whose(bare: Cluster, fresh_url: str) -> None:
    """Of one element that trial is cancelled, of all the study is stopped; the reason says why."""
    with studying(bare, fresh_url) as study:
        study.launch(
            steps=4, options="hasten held", trials=3, max_parallel=3, grace="5s", resources=SMALL
        )
        live = study.wait_steps(3, trials=3)
        bare.run(["scancel", f"{live[0].job}_{live[0].index}"], "root", check=True)
        study.wait_outcome(live[0].trial)
        study.gate.touch()
        study.wait_end(180)
        assert study.states()[live[0].trial] == "cancelled", study.tell()
        assert study.reasons() == {live[0].trial: f"its task was cancelled {UNKNOWN}"}
        assert sorted(study.states().values()) == ["cancelled", "complete", "complete"]
    with studying(bare, fresh_url) as study:
        study.launch(
            steps=4, options="hasten held", trials=3, max_parallel=3, grace="5s", resources=SMALL
        )
        job = study.wait_steps(3, trials=3)[0].job
        bare.run(["scancel", job], bare.user, check=True)
        for trial in range(3):
            study.wait_outcome(trial)
        study.gate.touch()
        status = study.wait_end(180, "stopped")
        assert status["reason"] == f"its array {job} was cancelled {UNKNOWN}"
        study.again()
        study.wait_end(180)
        study.check_whole(3)
