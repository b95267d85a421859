"""Tasks that serve several trials at once: each in a step of its own, none in another's way."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, parent, studying
from tests.cluster.processes import wait_for
from tests.cluster.test_faults import SICK

pytestmark = pytest.mark.slurm

# Notes what it was given, and when it ran; until the test has seen all that it waits for.
TELLS = """
import json, os, sys, time
from sweep.report import Reporter

began = time.time()
Reporter().log(step=1, value=1.0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES",
         "SLURM_CPUS_PER_TASK")
told = dict((name, os.environ.get(name)) for name in names)
print(json.dumps(dict(told, began=began, ended=time.time())))
"""
# Trial 0 takes more memory than it has at its third step; the others have theirs.
EATS = """
import os, time
from sweep.report import Reporter

reporter = Reporter()
for step in range(1, 9):
    reporter.log(step=step, value=float(step))
    if step == 3 and os.environ["SWEEP_TRIAL"] == "0":
        bytearray(600_000_000)
    time.sleep(0.5)
"""


@pytest.fixture
def faulty(clean_slurm: Cluster, fresh_url: str) -> Iterator[Faulty]:
    """A study to be broken, on a cluster that is made whole afterwards."""
    with studying(clean_slurm, fresh_url) as study:
        yield study


def launch(study: Faulty, slots: int = 4, **settings: Any) -> None:
    """Launch a study whose tasks hold whole nodes, a GPU for each of their slots."""
    given: dict[str, Any] = {
        "slurm": {"slots": slots, "exclusive": True},
        "resources": {"time": "5min", "cpus": 1, "gpus": "a100:1", "memory": "300M"},
        "grace": "10s",
    }
    study.launch(**(given | settings))


def slots_of(study: Faulty) -> dict[tuple[int, int], int]:
    """Return the slot of each attempt, by trial and number."""
    rows = study.sql(
        "SELECT t.number, a.number, a.slot FROM sweep_attempt a JOIN trials t USING (trial_id) "
        f"JOIN studies s USING (study_id) WHERE s.study_name = '{study.name}'"
    )
    return {(trial, number): slot for trial, number, slot in rows}


def test_a_whole_node_serves_four_trials_at_once(faulty: Faulty) -> None:
    """Two tasks of four slots, as K is 9: each trial has a GPU, CPUs, a step and a log of its own.

    K is never exceeded, nor reached where it is no multiple of the slots.
    """
    command = [str(faulty.user.bin / "python"), "-c", TELLS, str(faulty.gate)]
    launch(faulty, command=command, trials=18, max_parallel=9)
    plan = faulty.user.sweep("launch", faulty.path, "--dry-run").stdout
    assert "array      --array=0-4%2 (slurm, 4 trials at once in each task)" in plan
    assert "--ntasks=4 --cpus-per-task=1 --mem=1200M --gres=gpu:a100:4 --exclusive" in plan
    faulty.wait_steps(1, trials=8)
    (job,) = {attempt.job for attempt in faulty.attempts()}
    shown = faulty.cluster.run(["scontrol", "show", "job", f"{job}_0"], check=True).stdout
    assert "TresPerNode=gres:gpu:a100:4" in shown and "gres/gpu:a100=4" in shown
    assert "NumCPUs=8" in shown and "MinMemoryNode=1200M" in shown
    status = faulty.user.status(faulty.name)
    assert status["slots"] == 4 and status["tasks"]["running"] <= 2
    faulty.gate.touch()
    faulty.wait_end(90)
    assert faulty.states() == dict.fromkeys(range(18), "complete")
    told = []
    for trial in range(18):
        folder = faulty.user.runs / faulty.name / "trials" / f"{trial:05d}"
        (line,) = (folder / "attempts/1/log.txt").read_text().splitlines()
        told.append(json.loads(line))
    most = 0
    for one in told:
        assert re.fullmatch("[0-3]", one["CUDA_VISIBLE_DEVICES"]), one
        assert one["SLURM_CPUS_PER_TASK"] == "2"  # a quarter of the node
        beside = [other for other in told if other["began"] <= one["began"] < other["ended"]]
        most = max(most, len(beside))
    assert 4 < most <= 8
    for one, other in combinations(told, 2):
        if one["SLURMD_NODENAME"] != other["SLURMD_NODENAME"]:
            continue
        if one["began"] < other["ended"] and other["began"] < one["ended"]:
            assert one["CUDA_VISIBLE_DEVICES"] != other["CUDA_VISIBLE_DEVICES"]
            assert one["SLURM_STEP_ID"] != other["SLURM_STEP_ID"]
    assert set(slots_of(faulty).values()) == {0, 1, 2, 3}
    log = faulty.user.logs(faulty.name)
    assert all(f"slot {slot}: trial " in log for slot in range(4))


def test_fewer_slots_where_k_is_less(faulty: Faulty) -> None:
    """A K of 3 leaves one of four slots out, and the task asks for no more than it uses."""
    launch(faulty, steps=4, options="held", trials=4, max_parallel=3, pause_s=0.2)
    live = faulty.wait_steps(1, trials=3)
    shown = faulty.cluster.run(["scontrol", "show", "job", f"{live[0].job}_0"]).stdout
    assert "TresPerNode=gres:gpu:a100:3" in shown
    faulty.gate.touch()
    faulty.wait_end(60)
    faulty.check_whole(4)
    assert set(slots_of(faulty).values()) == {0, 1, 2}
    assert {attempt.job for attempt in faulty.attempts()} == {live[0].job}


def test_a_slot_that_dies_and_a_task_that_is_requeued(faulty: Faulty) -> None:
    """One worker's death is its trial's alone; a requeued task goes on with all of its trials."""
    launch(faulty, steps=6, options="hasten held", trials=8, max_parallel=8, pause_s=0.2)
    live = faulty.wait_steps(3, trials=8)
    first = [attempt for attempt in live if attempt.index == 0]
    second = [attempt for attempt in live if attempt.index == 1]
    assert len(first) == len(second) == 4
    faulty.kill(faulty.worker_of(first[0]))
    run, user = faulty.cluster.run, faulty.cluster.user
    run(["scontrol", "requeue", f"{second[0].job}_1"], user, check=True)
    faulty.wait_dead(first[0], *second)
    faulty.gate.touch()
    faulty.wait_end(120)
    faulty.check_whole(8)
    ends = {trial: [a.outcome for a in faulty.of(trial)] for trial in range(8)}
    killed = first[0].trial
    assert ends.pop(killed) == ["killed", "finished"]
    assert faulty.of(killed)[0].reason == "the worker of its slot was killed"
    assert all(ends[a.trial] == ["interrupted", "finished"] for a in second), faulty.tell()
    assert all(ends[a.trial] == ["finished"] for a in first[1:]), faulty.tell()


def test_out_of_memory_in_a_slot(slurm_cgroup: Cluster, fresh_url: str) -> None:
    """The trial that took more than its share fails; the three beside it notice nothing."""
    with studying(slurm_cgroup, fresh_url) as study:
        command = [str(study.user.bin / "python"), "-c", EATS]
        launch(study, command=command, trials=4, max_parallel=4, retry={"max_attempts": 1})
        study.wait_end(90)
        ends = {a.trial: (a.number, a.outcome) for a in study.attempts()}
        assert ends == {0: (1, "out of memory")} | dict.fromkeys((1, 2, 3), (1, "finished"))


@pytest.mark.long
def test_time_limit_of_a_task_with_slots(faulty: Faulty) -> None:
    """The warning reaches every slot: all save, leave, and go on in the next wave."""
    resources = {"time": "1min", "cpus": 1, "gpus": 1, "memory": "200M"}
    launch(
        faulty,
        steps=75,
        trials=4,
        max_parallel=4,
        resources=resources,
        grace="20s",
        slurm={"slots": 4},
    )
    faulty.wait_end(300)
    faulty.check_whole(4)
    first = [faulty.of(trial)[0] for trial in range(4)]
    why = "asked to leave before its time limit"
    assert {(a.outcome, a.reason) for a in first} == {("timeout", why)}


@pytest.mark.long
def test_scancel_of_a_task_with_slots(faulty: Faulty) -> None:
    """The user's own scancel of one task cancels the trials that it ran, and no others."""
    launch(faulty, steps=10, trials=8, max_parallel=8)
    live = faulty.wait_steps(3, trials=8)
    gone = {attempt.trial for attempt in live if attempt.index == 1}
    faulty.cluster.run(["scancel", f"{live[0].job}_1"], faulty.cluster.user, check=True)
    faulty.wait_end(120)
    expected = {trial: "cancelled" if trial in gone else "complete" for trial in range(8)}
    assert len(gone) == 4 and faulty.states() == expected


@pytest.mark.long
@pytest.mark.parametrize("what", ["task", "srun"])
def test_a_process_above_the_slots_is_killed(faulty: Faulty, what: str) -> None:
    """With the task's own process all its trials are interrupted; with one srun only one."""
    launch(faulty, steps=12, trials=4, max_parallel=4)
    live = faulty.wait_steps(3, trials=4)
    sruns = find_sruns(faulty, live[0].job)
    assert len(sruns) == 4
    if what == "task":
        os.kill(parent(sruns[0]), signal.SIGKILL)
    else:
        os.kill(sruns[0], signal.SIGKILL)
    faulty.wait_end(200)
    faulty.check_whole(4)
    again = [trial for trial in range(4) if len(faulty.of(trial)) > 1]
    assert len(again) == (4 if what == "task" else 1), faulty.tell()


def find_sruns(study: Faulty, job: str) -> list[int]:
    """Return the pids of the sruns that hold a job's slots."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # srun forks; the first of the two is the child of the task.
        if words[0] == b"srun" and any(w.startswith(f"SWEEP_SLOT={job}_".encode()) for w in words):
            found.append(int(entry.name))
    return sorted(pid for pid in found if parent(pid) not in found)


@pytest.mark.long
def test_all_slots_die_at_once(faulty: Faulty) -> None:
    """Every slot is started again, and goes on with its trial; there is no second task."""
    launch(faulty, slots=2, steps=6, trials=6, max_parallel=2)
    live = faulty.wait_steps(2, trials=2)
    for attempt in live:
        faulty.kill(faulty.worker_of(attempt))
    wait_for(lambda: len(faulty.attempts()) >= 4, 60, "both slots to begin again")
    faulty.wait_end(120)
    faulty.check_whole(6)
    assert len({(a.job, a.index) for a in faulty.attempts()}) == 1


@pytest.mark.long
def test_sick_node_of_a_task_with_slots(faulty: Faulty) -> None:
    """What fails in one slot counts for all of its task: none of them stays on the sick node."""
    sick = faulty.user.write("sick.py", SICK)
    python = str(faulty.user.bin / "python")
    command = [
        python,
        str(sick),
        str(faulty.user.folder / "train.py"),
        "4",
        "1",
        "1",
        str(faulty.gate),
    ]
    launch(faulty, steps=4, command=command, trials=24, max_parallel=12)
    faulty.wait_end(150)
    faulty.check_whole(24)
    failed = [a for a in faulty.attempts() if a.host == "n2"]
    assert 3 <= len(failed) <= 12, faulty.tell()  # at most three of each slot
    assert {a.outcome for a in failed} == {"given back"}
    notes = faulty.user.status(faulty.name)["notes"]
    assert any("the node n2 is avoided: " in note for note in notes), notes
