"""``sweep try --on-node`` on a real Slurm: a job trains the first point, and nothing stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.test_launch import FROM_OUTPUT
from tests.cluster.user import User

pytestmark = pytest.mark.slurm


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"try-{tmp_path.name}").leaving_nothing() as someone:
        someone.write("train.py", "import sys\nprint('value=' + sys.argv[1])\n")
        yield someone


def test_on_a_node(user: User) -> None:
    """The node's name, the value that the first point gives, and no folder at the end."""
    command = ["/usr/bin/python3", "train.py", "{x}"]
    path = user.study("tried", command, objective=FROM_OUTPUT, points=[{"x": 0.5}])
    done = user.sweep("try", path, "--on-node", "--json")
    data = json.loads(done.stdout)
    metric = next(line for line in data["lines"] if line["name"] == "metric")
    assert metric["state"] == "ok", metric
    assert data["series"]["value"]["points"] == [[0, 0.5]]
    assert data["host"] in user.cluster.nodes
    user.check_nothing_left()
    assert not user.runs.exists()
