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
from tests.cluster.processes import wait_for
from tests.packed_gpu import PackedGpu, nvml_library, write_training  # noqa: F401
from tests.waiting import text_of

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


def on_cards(study: Faulty, library: Path) -> tuple[PackedGpu, dict[str, str]]:
    """Return the modelled cards of a node, for a study of the cluster's user's, and what its
    launch needs in its environment to see them."""
    user = study.user
    place = user.make(user.folder.with_name(f"{user.folder.name}-node"))  # not among its code
    driver = shutil.copytree(library, place / "driver")  # root's own is closed to others
    driver.chmod(0o755)
    gpu = PackedGpu(place / "gpu", driver)
    for card in range(4):
        gpu.set(card, progress={1: 1.0, 16: 16.0})
    for path in (gpu.folder, *gpu.folder.iterdir()):
        shutil.chown(path, user.cluster.user)
    return gpu, {name: gpu.env[name] for name in ("NVML_STUB_MODEL", "LD_LIBRARY_PATH")}


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
    faulty.wait_dead(*first[:2], *second)
    faulty.gate.touch()
    faulty.wait_end(150)
    faulty.check_whole(12)
    ends = {trial: [a.outcome for a in faulty.of(trial)] for trial in range(12)}
    assert ends.pop(first[0].trial) == ["killed", "finished"], faulty.tell()
    assert ends.pop(first[1].trial) == ["killed", "finished"], faulty.tell()
    assert all(ends.pop(a.trial) == ["interrupted", "finished"] for a in second), faulty.tell()
    assert all(outcomes == ["finished"] for outcomes in ends.values()), faulty.tell()
    cards = faulty.user.runs / faulty.name / "cards"
    wait_for(lambda: not list(cards.glob("*/card.json")), 60, "the last task to leave its GPU")


def test_what_is_measured_decides_how_many_tasks_run(faulty: Faulty, nvml_library: Path) -> None:  # noqa: F811
    """Two tasks of one trial each at first; two trials gain, and as many tasks run as K takes."""
    gpu, env = on_cards(faulty, nvml_library)
    write_training(faulty.user.folder)
    python, train = faulty.user.bin / "python", faulty.user.folder / "train.py"
    flags = ["--epochs=30", "--epoch-s=0.5", "--memory=2e9"]
    launch(
        faulty,
        "auto",
        command=[str(python), str(train), *flags, "{params}"],
        objective={"metric": "score", "direction": "maximize"},
        trials=20,
        max_parallel=8,
        resources={"time": "10min", "gpus": "a100:1", "cpus": 2, "memory": "600M", "share": "auto"},
        slurm={"extra": ["--nodelist=n1"]},  # its cards are four, whichever task has them
        env=env,
    )
    plan = faulty.user.sweep("launch", faulty.path, "--dry-run", env=faulty.env).stdout
    assert "trials share the GPU of each task" in plan

    def living() -> list[int]:
        return [len(gpu.live(card)) for card in range(4)]

    wait_for(lambda: living() == [2, 2, 2, 2], 150, "two trials on each of four GPUs")
    job = next(attempt.job for attempt in faulty.attempts() if attempt.outcome is None)
    shown = faulty.cluster.run(["scontrol", "show", "job", job], faulty.cluster.user).stdout
    assert "ArrayTaskThrottle=4" in shown
    faulty.wait_end(150)
    assert faulty.states() == dict.fromkeys(range(20), "complete"), faulty.tell()
    assert {attempt.outcome for attempt in faulty.attempts()} == {"finished"}, faulty.tell()
    (level,) = json.loads(
        (faulty.user.runs / faulty.name / "cards/levels.json").read_text()
    ).values()
    assert level["decided"] == 2 and level["peaks"][-1][-1] == 2_000_000_000


def test_a_task_packs_each_of_its_gpus(faulty: Faulty, nvml_library: Path) -> None:  # noqa: F811
    """One task with two GPUs; one of them fails, and what is left trains on the other."""
    gpu, env = on_cards(faulty, nvml_library)
    launch(
        faulty,
        2,
        steps=4,
        options="held",
        trials=8,
        max_parallel=4,
        pause_s=0.2,
        resources={"time": "10min", "gpus": "a100:1", "cpus": 2, "memory": "600M", "share": 2},
        slurm={"slots": 2, "extra": ["--nodelist=n1"]},
        env=env,
    )
    live = faulty.wait_steps(3, trials=4)
    assert len(by_task(live)) == 1, faulty.tell()
    status = faulty.user.status(faulty.name)
    assert sorted((card["gpu"], len(card["trials"])) for card in status["gpus"]) == [
        ("0", 2),
        ("1", 2),
    ]
    gpu.set(1, lost=True)
    cards = faulty.user.runs / faulty.name / "cards"
    notice = next(cards.glob("*-1")) / "card.json"
    wait_for(lambda: '"is_lost": true' in text_of(notice), 60, "the GPU to be seen as lost")
    faulty.gate.touch()
    faulty.wait_end(150)
    faulty.check_whole(8)
    assert all(len(faulty.of(trial)) == 1 for trial in range(8)), faulty.tell()


@pytest.mark.long
@pytest.mark.parametrize(
    "card",
    [{}, {"hidden": 1}, {"hidden": 2, "neighbour": 2 * 10**9}],
    ids=["plain", "hidden", "host's numbers and a neighbour"],
)
def test_memory_that_grows_late(
    card: dict[str, int],
    faulty: Faulty,
    nvml_library: Path,  # noqa: F811
) -> None:
    """What it comes to is seen when it is too late for some: those go on alone, and none fails."""
    gpu, env = on_cards(faulty, nvml_library)
    for number in range(4):
        gpu.set(number, total=10 * 10**9, **card)
    write_training(faulty.user.folder)
    flags = ["--epochs=8", "--epoch-s=0.3", "--memory=3e9", "--late=4"]
    command = [str(faulty.user.bin / "python"), str(faulty.user.folder / "train.py"), *flags]
    launch(
        faulty,
        "auto",
        command=[*command, "{params}"],
        objective={"metric": "score", "direction": "maximize"},
        trials=8,
        max_parallel=8,
        retry={"max_attempts": 1},
        slurm={"extra": ["--nodelist=n1"]},
        env=env,
    )
    faulty.wait_end(240)
    assert faulty.states() == dict.fromkeys(range(8), "complete"), faulty.tell()


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
