"""Copies of data on a real Slurm: each node makes one, and training reads it.

The nodes of the tests' cluster are one machine: each has a folder named as it for its disk.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.test_launch import FROM_OUTPUT, no_elements, watch
from tests.cluster.user import User

pytestmark = pytest.mark.slurm

NODES = ("n1", "n2", "n3", "n4")
TRIALS = 24
READS = (
    "import os, sys, time; time.sleep(1); "
    "print('read', sys.argv[2], os.environ['SLURMD_NODENAME']); "
    "print('value=' + str(len(open(sys.argv[2] + '/x', 'rb').read())))"
)


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def test_each_node_copies_once(user: User, fresh_url: str) -> None:
    """Many trials at once on four nodes: one copy a node, which its trials read; none fails."""
    data, disks = user.make(user.folder / "data"), user.make(user.folder / "disks")
    (data / "x").write_bytes(os.urandom(3_000_000))
    (data / "x").chmod(0o644)
    for node in NODES:
        user.make(disks / node)
    path = user.study(
        "staged",
        ["/usr/bin/python3", "-c", READS, "{x}", "{data.d}"],
        objective=FROM_OUTPUT,
        trials=TRIALS,
        max_parallel=12,
        data={"d": {"path": str(data), "stage": "node"}},
        staging={"place": f"{disks}/$SLURMD_NODENAME"},
    )
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    watch(user, no_elements(user), 600)
    status = user.wait_state("staged", "finished")
    assert status["counts"]["complete"] == TRIALS
    assert all(trial["value"] == 3_000_000 for trial in user.trials("staged"))

    logs = [log.read_text() for log in (user.runs / "staged/logs").glob("[0-9]*_[0-9]*.log")]
    copied = Counter(
        line.rpartition(f"{disks}/")[2].partition("/")[0]
        for text in logs
        for line in text.splitlines()
        if ": copying " in line
    )
    trained = (user.runs / "staged/trials").glob("*/attempts/*/log.txt")
    read = [log.read_text().partition("read ")[2].split()[:2] for log in trained]
    assert all(Path(where).is_relative_to(disks / node) for where, node in read)
    assert copied == dict.fromkeys({node for _, node in read}, 1)
    assert len(copied) > 1
