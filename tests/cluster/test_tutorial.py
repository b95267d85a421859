"""docs/tutorial-cluster.md: its commands, as they are written, print what it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.user import User
from tests.tutorial import check, read_blocks

pytestmark = pytest.mark.slurm


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The cluster's user, in a folder of his own; his jobs are cancelled afterwards."""
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def test_the_tutorial_for_a_cluster(user: User) -> None:
    """Block by block, by a shell on the login node."""
    user.runs = user.folder / "first/runs"  # where they would be without SWEEP_RUNS
    env = user.env({"COLUMNS": "100"})
    here, count = user.folder, 0
    for block in read_blocks("tutorial-cluster.md"):
        done = user.cluster.run(
            f"set -e\n{block.commands}pwd >&2",
            user=user.cluster.user,
            env=env,
            cwd=here,
            timeout_s=900,
        )
        assert done.returncode == 0, (block.commands, done.stdout, done.stderr, user.explain())
        check(block, done.stdout)
        here, count = Path(done.stderr.rstrip().splitlines()[-1]), count + 1
    assert count >= 9
