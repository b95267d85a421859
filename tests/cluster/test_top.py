"""What a real Slurm says is free, and what stands before a study."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, studying
from tests.cluster.processes import wait_for

pytestmark = pytest.mark.slurm

WAITS = """
import os, sys, time
from sweep.report import Reporter
Reporter().log(step=1, value=1.0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
"""


@pytest.fixture
def faulty(clean_slurm: Cluster, fresh_url: str) -> Iterator[Faulty]:
    """A study on a cluster that is made whole afterwards."""
    with studying(clean_slurm, fresh_url) as study:
        yield study


def test_what_is_free(faulty: Faulty) -> None:
    """The GPUs that the study's tasks hold are not free, and its waiting tasks are its own."""
    command = [str(faulty.user.bin / "python"), "-c", WAITS, str(faulty.gate)]
    resources = {"time": "5min", "cpus": 1, "gpus": "a100:1", "memory": "300M"}
    faulty.launch(command=command, trials=4, max_parallel=2, resources=resources)
    faulty.wait_steps(1, trials=2)
    seen: dict[str, Any] = {}
    at_most = "as many as max_parallel are running"

    def is_said() -> bool:
        """Slurm says why a task waits when it next comes to it."""
        seen.update(json.loads(faulty.user.sweep("top", faulty.name, "--json").stdout))
        mine = [one["reason"] for one in seen["waiting"] if one["job"] in seen["mine"]]
        return mine == [at_most]

    wait_for(is_said, 120, f"Slurm to say {at_most}")
    names = [node["name"] for node in seen["nodes"]]
    assert names == faulty.cluster.layout.node_names
    gpus = [a for node in seen["nodes"] for a in node["amounts"] if a["name"] == "gpu:a100"]
    assert sum(a["total"] for a in gpus) == 4 * len(names)
    assert sum(a["free"] for a in gpus) == 4 * len(names) - 2
    (mine,) = seen["mine"]
    ours = [one for one in seen["waiting"] if one["job"] == mine]
    assert [one["tasks"] for one in ours] == [2]
    shown = faulty.user.sweep("top", faulty.name).stdout
    assert f"yours: job {mine}, 2 tasks waiting" in shown
    assert f"free: gpu:a100 {4 * len(names) - 2} of {4 * len(names)}" in shown
    faulty.gate.touch()
    faulty.wait_end(120)
    wait_for(lambda: faulty.states() == dict.fromkeys(range(4), "complete"), 60, "all to end")
