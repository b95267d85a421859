"""Faults on a real Slurm: each study ends with exactly N trials, and says what happened."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, parent, studying
from tests.cluster.processes import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.long]


@pytest.fixture
def faulty(clean_slurm: Cluster, fresh_url: str) -> Iterator[Faulty]:
    """A study to be broken, on a cluster that is made whole afterwards."""
    with studying(clean_slurm, fresh_url) as study:
        yield study


def test_each_task_meets_another_fault(faulty: Faulty) -> None:
    """Training killed, worker killed, one requeued by hand, one cancelled by hand.

    The trials go on from their checkpoints, but for the one that the user has cancelled.
    """
    faulty.launch(steps=12, trials=5, max_parallel=5, grace="10s")
    live = {a.trial: a for a in faulty.wait_steps(3, trials=5)}
    assert live[0].group is not None
    faulty.kill(live[0].group)
    faulty.kill(faulty.worker_of(live[1]))
    run, user = faulty.cluster.run, faulty.cluster.user
    run(["scontrol", "requeue", f"{live[2].job}_{live[2].index}"], user, check=True)
    run(["scancel", f"{live[3].job}_{live[3].index}"], user, check=True)
    faulty.wait_end(150)
    states = faulty.states()
    assert states == {0: "complete", 1: "complete", 2: "complete", 3: "cancelled", 4: "complete"}
    first = [faulty.of(trial)[0] for trial in range(5)]
    assert [attempt.outcome for attempt in first] == [
        "killed", "killed", "interrupted", "cancelled", "finished",
    ]  # fmt: skip
    assert first[1].reason == "its task was killed by signal 9"
    assert first[2].reason == "its task was requeued"
    assert faulty.reasons() == {3: "its task was cancelled by hand (scancel)"}
    assert [len(faulty.of(trial)) for trial in range(5)] == [2, 2, 2, 1, 1]
    for trial in (0, 1, 2):
        faulty.check_resumed(trial)
    assert faulty.count_files() <= 6 * 5 + 50


def test_whole_array_is_cancelled(faulty: Faulty) -> None:
    """After scancel of the array nothing is queued, the study is stopped; launch does the rest."""
    faulty.launch(steps=8, trials=8, max_parallel=3, grace="10s")
    live = faulty.wait_steps(2, trials=3)
    faulty.cluster.run(["scancel", live[0].job], faulty.cluster.user, check=True)
    faulty.user.wait_empty(60)
    status = faulty.user.status(faulty.name)
    assert status["state"] == "stopped", faulty.tell()
    assert status["reason"] == f"its array {live[0].job} was cancelled by hand (scancel)"
    assert status["counts"]["cancelled"] == 0
    faulty.again()
    faulty.wait_end(150)
    faulty.check_whole(8)


@pytest.mark.long
def test_preempted_by_requeue_and_by_cancel(clean_slurm: Cluster, fresh_url: str) -> None:
    """Preempted trials go on from their checkpoint, whether Slurm requeues or cancels the task."""
    with (
        studying(clean_slurm, fresh_url) as requeued,
        studying(clean_slurm, fresh_url) as cancelled,
    ):
        for study, partition in ((requeued, "preempt"), (cancelled, "preemptc")):
            study.launch(steps=40, trials=2, grace="10s", slurm={"partition": partition})
        live = [a for study in (requeued, cancelled) for a in study.wait_steps(2, trials=2)]
        for host in {attempt.host for attempt in live}:
            clean_slurm.submit("sleep 2", "-p", "high", "-c8", "-w", host, "-o", "/dev/null")
        for study in (requeued, cancelled):
            study.wait_end(200)
            study.check_whole(2)
            first = [study.of(trial)[0] for trial in range(2)]
            assert [a.outcome for a in first] == ["interrupted"] * 2, study.tell()
            assert [a.reason for a in first] == ["its task was preempted"] * 2, study.tell()


@pytest.mark.long
def test_node_is_set_down(faulty: Faulty) -> None:
    """Trials of a node that goes down go on elsewhere."""
    faulty.launch(steps=8, trials=3, grace="10s")
    live = faulty.wait_steps(3, trials=3)
    node = live[0].host
    faulty.cluster.set_node(node, "DOWN")
    faulty.wait_end(120)
    faulty.check_whole(3)
    gone = [a for a in faulty.attempts() if a.host == node and a.number == 1]
    assert {(a.outcome, a.reason) for a in gone} == {("node failed", "its node failed")}


@pytest.mark.long
def test_same_task_runs_twice(faulty: Faulty) -> None:
    """A node is cut off and its task runs elsewhere: what the first run still writes is refused."""
    faulty.launch(steps=300, trials=1, grace="10s")
    live = faulty.wait_steps(3, trials=1)
    faulty.cluster.kill_slurmd(live[0].host)
    wait_for(lambda: len(faulty.attempts()) > 1, 120, "the second run of the task")
    first, second = faulty.attempts()
    assert live[0].group is not None
    assert first.host != second.host
    assert (first.outcome, first.reason) == ("node failed", "its node failed")
    wait_for(lambda: not is_alive(live[0].group), 30, "the first run's training to be ended")
    first = faulty.attempts()[0]
    wait_for(lambda: len(faulty.attempts()[1].steps) >= 2, 30, "the second run to report")
    assert faulty.attempts()[0] == first, "a stale write was accepted"
    log = faulty.user.logs(faulty.name)
    assert "no longer owns its trial; nothing was written" in log
    steps = faulty.attempts()[1].steps
    assert steps[0] > 1
    assert faulty.attempts()[1].outcome is None
    faulty.cluster.run(["scancel", "-u", faulty.cluster.user])


@pytest.mark.long
def test_daemons_die(faulty: Faulty) -> None:
    """slurmctld killed just after sbatch and in mid-run, slurmdbd down at a task's death.

    Nothing is lost, and nothing runs twice.
    """
    faulty.launch(steps=8, trials=4, max_parallel=2, grace="10s")
    faulty.cluster.kill_slurmctld()  # just after sbatch
    faulty.cluster.start_slurmctld()
    if not faulty.user.queue() and not faulty.attempts():
        faulty.again()  # Slurm has lost the array; launch finds out and submits another
    live = faulty.wait_steps(2, trials=2)
    faulty.cluster.kill_slurmctld()
    faulty.kill(faulty.worker_of(live[0]))
    faulty.cluster.start_slurmctld()
    faulty.cluster.stop_slurmdbd()  # nobody can be asked why that task ended
    time.sleep(20)
    faulty.cluster.start_slurmdbd()
    if faulty.wait_end(180, "finished", "idle")["state"] == "idle":
        faulty.again()  # the killed slurmctld had lost the finaliser
        faulty.wait_end(90)
    faulty.check_whole(4)


@pytest.mark.long
def test_time_limit_with_grace(faulty: Faulty) -> None:
    """Trials longer than the task's limit are done in pieces, each from the last checkpoint."""
    # Slurm looks every 30 s whether a signal is due, so it comes 12 to 42 s after the start.
    faulty.launch(steps=50, trials=2, grace="48s", resources={"time": "1min", "cpus": 1})
    faulty.wait_end(180)
    faulty.check_whole(2)
    ends = Counter(a.outcome for a in faulty.attempts())
    assert ends["finished"] == 2
    assert ends["interrupted"] >= 2, faulty.tell()


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("bytearray(600_000_000)", "out of memory"),
        ("import os; os.system('srun -n1 --overlap python3 -c \"bytearray(600_000_000)\"'); "
         "raise SystemExit(1)", "out of memory"),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', "
         "'bytearray(600_000_000)']); "
         "from sweep.report import Reporter; Reporter().log(step=1, value=1.0)", "finished"),
    ],
    ids=["killed", "step", "survived"],
)  # fmt: skip
def test_out_of_memory(
    slurm_cgroup: Cluster, fresh_url: str, script: str, outcome: str
) -> None:
    """Memory that ran out is told in all three forms; a training that goes on all the same may."""
    with studying(slurm_cgroup, fresh_url) as study:
        command = [str(study.user.bin / "python"), "-c", script]
        study.launch(command=command, trials=1, retry={"max_attempts": 2},
                     resources={"time": "2min", "cpus": 1, "memory": "200M"})  # fmt: skip
        study.wait_end(120)
        attempts = study.attempts()
        assert {a.outcome for a in attempts} == {outcome}, study.tell()
        if outcome == "finished":
            assert study.states() == {0: "complete"}
        else:
            assert study.states() == {0: "failed"}
            assert study.reasons()[0].startswith("2 attempts ended in a fault, the last: ")


def test_disk_is_full(faulty: Faulty) -> None:
    """A full disk holds the study and says so; after room was made, launch completes it."""
    runs = faulty.user.runs / faulty.name
    trials = runs / "trials"
    for folder in (faulty.user.runs, runs, trials):
        faulty.user.make(folder).chmod(0o700)
    uid = os.stat(trials).st_uid
    mount = ["mount", "-t", "tmpfs", "-o", f"size=300k,mode=700,uid={uid},gid={uid}", "tmpfs"]
    subprocess.run([*mount, str(trials)], check=True)
    try:
        faulty.launch(steps=6, trials=3, grace="10s", pause_s=1.5)
        faulty.wait_steps(2, trials=3)
        filler = trials / "filler"
        with filler.open("wb", buffering=0) as stream, pytest.raises(OSError):
            while True:
                stream.write(bytes(1024))
        status = faulty.wait_end(60, "held")
        assert status["reason"].startswith("no space is left on the disk of "), faulty.tell()
        faulty.user.wait_empty(60)
        filler.unlink()
        faulty.again()
        faulty.wait_end(90)
        faulty.check_whole(3)
        assert {a.outcome for a in faulty.attempts()} == {"given back", "finished"}
    finally:
        faulty.cluster.run(["scancel", "-u", faulty.cluster.user])
        wait_for(lambda: not faulty.user.queue(), 60, "the queue to be empty")
        subprocess.run(["umount", "-l", str(trials)], check=True)


@pytest.mark.long
def test_sick_node(faulty: Faulty) -> None:
    """Where everything fails at once on one node, it is avoided, and no trial is lost to it."""
    sick = faulty.user.write("sick.py", SICK)
    python = str(faulty.user.bin / "python")
    command = [python, str(sick), str(faulty.user.folder / "train.py"), "4", "1", "1"]
    faulty.launch(
        steps=4, command=command, trials=12, max_parallel=4,
        resources={"time": "5min", "cpus": 5},  # a node holds one task
    )  # fmt: skip
    faulty.wait_end(150)
    faulty.check_whole(12)
    failed = [a for a in faulty.attempts() if a.host == "n2"]
    assert 3 <= len(failed) <= 6, faulty.tell()
    assert {a.outcome for a in failed} == {"given back"}
    notes = faulty.user.status(faulty.name)["notes"]
    assert any("the node n2 is avoided: " in note for note in notes), notes


# A training that cannot work on one of the nodes, as where an image is missing.
SICK = '''
import os, sys
if os.environ["SLURMD_NODENAME"] == "n2":
    sys.exit("FATAL: could not open image")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
'''


@pytest.mark.long
def test_interpreter_is_missing_on_a_node(faulty: Faulty) -> None:
    """Where sweep's own Python does not start, the task says so, and Slurm avoids the node."""
    missing = "[ $SLURMD_NODENAME != n2 ] || exec() { builtin exec /nonexistent/python; }"
    faulty.launch(
        steps=4, trials=10, max_parallel=4, slurm={"setup": [missing]},
        resources={"time": "5min", "cpus": 5},
    )  # fmt: skip
    faulty.wait_end(120)
    faulty.check_whole(10)
    assert [a for a in faulty.attempts() if a.host == "n2"] == []
    words = "the node n2 is avoided: sweep's own Python does not start there"
    assert faulty.user.status(faulty.name)["notes"] == [words]


def is_alive(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.long
def test_slurmstepd_dies(faulty: Faulty) -> None:
    """Slurm's own process above a task is killed: the trial ends, and its task pulls no other."""
    faulty.launch(steps=10, trials=3, max_parallel=1, grace="10s")
    live = faulty.wait_steps(3, trials=1)
    faulty.kill(parent(faulty.worker_of(live[0])))
    faulty.wait_end(400)
    faulty.check_whole(3)


@pytest.mark.long
def test_time_limit_without_grace(faulty: Faulty) -> None:
    """A training that heeds no signal is ended by the limit, and goes on from its checkpoint."""
    faulty.launch(steps=100, trials=2, grace="0s", options="deaf", every=5,
                  resources={"time": "1min", "cpus": 1})  # fmt: skip
    faulty.wait_end(500)
    faulty.check_whole(2, interval=5)


@pytest.mark.long
def test_long_trials_under_a_short_limit(faulty: Faulty) -> None:
    """Trials of 300 s under a limit of a minute, with a checkpoint every 10 s: all complete."""
    faulty.launch(steps=300, trials=2, every=10, grace="15s",
                  resources={"time": "1min", "cpus": 1})  # fmt: skip
    faulty.wait_end(1200)
    faulty.check_whole(2, interval=10)
