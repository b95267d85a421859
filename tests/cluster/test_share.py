"""Tasks whose GPUs several trials share: each worker a step of its own, all with what the task has.

The GPUs are Slurm's of these tests (files without a device); what a driver would say of them is a
stand-in's (tests/packed_gpu.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, Seen, studying
from tests.packed_gpu import PackedGpu, nvml_library  # noqa: F401

pytestmark = pytest.mark.slurm

# At their third step trials 1 and 2 take more of the host's memory than the task has; the test says
# when.
EATS = """
import os, sys, time
from sweep.report import Reporter

reporter = Reporter()
first = os.environ["SWEEP_ATTEMPT"] == "1"
for step in range(1, 6):
    reporter.log(step=step, value=float(step))
    while step == 3 and first and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    if step == 3 and first and os.environ["SWEEP_TRIAL"] in "12":
        held = bytearray(900_000_000)
    time.sleep(0.1)
"""


@pytest.fixture
def faulty(clean_slurm: Cluster, fresh_url: str) -> Iterator[Faulty]:
    """A study to be broken, on a cluster that is made whole afterwards."""
    with studying(clean_slurm, fresh_url) as study:
        yield study


def launch(study: Faulty, share: Any, **settings: Any) -> None:
    """Launch a study whose tasks have a GPU each, which trials share."""
    given: dict[str, Any] = {
        "resources": {"time": "10min", "gpus": "a100:1", "cpus": 4, "share": share},
        "grace": "10s",
    }
    given["resources"]["memory"] = "1500M"
    study.launch(**(given | settings))


def by_task(attempts: list[Seen]) -> dict[int, list[Seen]]:
    """Return attempts by their array's index."""
    found: dict[int, list[Seen]] = {}
    for attempt in attempts:
        found.setdefault(attempt.index, []).append(attempt)
    return found


def on_card(study: Faulty, library: Path) -> PackedGpu:
    """Return a modelled card for a study of the cluster's user's."""
    gpu = PackedGpu(study.user.folder / "gpu", library)
    for name in (gpu.folder, *gpu.folder.iterdir()):
        shutil.chown(name, study.user.cluster.user)
    return gpu


def test_trials_share_the_gpu_of_a_task(faulty: Faulty) -> None:
    """Two tasks of three trials, as K is 6; one worker, one training, and one task are killed.

    What is killed is its trial's matter alone; a task that is requeued goes on with its own.
    """
    launch(faulty, 3, steps=6, options="hasten held", trials=12, max_parallel=6, pause_s=0.2)
    plan = faulty.user.sweep("launch", faulty.path, "--dry-run").stdout
    assert "%2 (slurm, trials share the GPU of each task)" in plan
    live = faulty.wait_steps(3, trials=6)
    tasks = by_task(live)
    assert sorted(len(one) for one in tasks.values()) == [3, 3]
    status = faulty.user.status(faulty.name)
    assert sorted(len(gpu["trials"]) for gpu in status["gpus"]) == [3, 3]
    assert {gpu["why"] for gpu in status["gpus"]} == {"limit"}
    first, second = tasks.values()
    trained = first[1].group
    assert trained is not None
    faulty.kill(faulty.worker_of(first[0]))
    os.killpg(trained, signal.SIGKILL)
    run, user = faulty.cluster.run, faulty.cluster.user
    run(["scontrol", "requeue", f"{second[0].job}_{second[0].index}"], user, check=True)
    faulty.gate.touch()
    faulty.wait_end(150)
    faulty.check_whole(12)
    ends = {trial: [a.outcome for a in faulty.of(trial)] for trial in range(12)}
    assert ends.pop(first[0].trial) == ["killed", "finished"], faulty.tell()
    assert ends.pop(first[1].trial) == ["killed", "finished"], faulty.tell()
    assert all(ends.pop(a.trial) == ["interrupted", "finished"] for a in second), faulty.tell()
    assert all(outcomes == ["finished"] for outcomes in ends.values()), faulty.tell()
    assert not list((faulty.user.runs / faulty.name / "cards").glob("*/card.json"))


def test_out_of_host_memory_blames_nobody(slurm_cgroup: Cluster, fresh_url: str) -> None:
    """Of what shares the task's memory the kernel ends a training and a worker: both trials go on,
    though one attempt is all that they have, and the level falls."""
    with studying(slurm_cgroup, fresh_url) as study:
        command = [str(study.user.bin / "python"), "-c", EATS, str(study.gate)]
        resources = {"time": "10min", "gpus": 1, "cpus": 4, "memory": "700M", "share": 3}
        launch(
            study,
            3,
            command=command,
            trials=4,
            max_parallel=3,
            retry={"max_attempts": 1},
            resources=resources,
        )
        live = {attempt.trial: attempt for attempt in study.wait_steps(3, trials=3)}
        worker = study.worker_of(live[2])
        Path(f"/proc/{worker}/oom_score_adj").write_text("1000")  # the kernel's first choice
        study.gate.touch()
        study.wait_end(150)
        ends = {trial: [a.outcome for a in study.of(trial)] for trial in range(4)}
        crowded = ["out of shared memory", "finished"]
        assert ends == {0: ["finished"], 1: crowded, 2: crowded, 3: ["finished"]}, study.tell()
        assert all(state == "complete" for state in study.states().values())
        (level,) = json.loads(
            (study.user.runs / study.name / "cards/levels.json").read_text()
        ).values()
        assert level["ceiling"] < 3 and level["short_of_host"]
