"""Faults on a real Slurm: each study ends with exactly N trials, and says what happened."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, Seen, parent, studying
from tests.cluster.processes import wait_for
from tests.waiting import text_of

pytestmark = pytest.mark.slurm


@pytest.fixture
def faulty(clean_slurm: Cluster, fresh_url: str) -> Iterator[Faulty]:
    """A study to be broken, on a cluster that is made whole afterwards."""
    with studying(clean_slurm, fresh_url) as study:
        yield study


def test_each_task_meets_another_fault(faulty: Faulty) -> None:
    """Training killed, worker killed, one requeued and one cancelled by hand, a node set DOWN.

    The trials go on from their checkpoints, but for the one that the user has cancelled.
    """
    # A node holds two of them.
    resources = {"time": "20min", "cpus": 4, "memory": "200M"}
    faulty.launch(
        steps=6,
        options="hasten held",
        trials=8,
        max_parallel=8,
        grace="10s",
        pause_s=0.5,
        resources=resources,
    )
    live = sorted(faulty.wait_steps(3, trials=8), key=lambda attempt: attempt.host)
    killed, orphaned, requeued, cancelled, untouched, _, *downed = live
    assert killed.group is not None
    faulty.kill(killed.group)
    faulty.kill(faulty.worker_of(orphaned))
    run, user = faulty.cluster.run, faulty.cluster.user
    run(["scontrol", "requeue", f"{requeued.job}_{requeued.index}"], user, check=True)
    run(["scancel", f"{cancelled.job}_{cancelled.index}"], user, check=True)
    faulty.cluster.set_node(downed[0].host, "DOWN")
    faulty.wait_dead(killed, orphaned, requeued, cancelled, *downed)
    faulty.gate.touch()
    faulty.wait_end(150)
    states = dict.fromkeys(range(8), "complete") | {cancelled.trial: "cancelled"}
    assert faulty.states() == states, faulty.tell()

    def ended(attempt: Seen) -> tuple[str | None, str]:
        first = faulty.of(attempt.trial)[0]
        return first.outcome, first.reason

    assert ended(killed)[0] == "killed"
    assert ended(orphaned) == ("killed", "its task was killed by signal 9")
    assert ended(requeued) == ("interrupted", "its task was requeued")
    assert [ended(attempt) for attempt in downed] == [("node failed", "its node failed")] * 2
    assert faulty.reasons() == {cancelled.trial: "its task was cancelled by hand (scancel)"}
    assert [len(faulty.of(a.trial)) for a in (killed, requeued, cancelled, untouched)] == [
        2,
        2,
        1,
        1,
    ]
    for attempt in (killed, orphaned, requeued, *downed):
        faulty.check_resumed(attempt.trial)
    # Six a trial, five more an interrupted attempt, and the study's own, of nine tasks.
    assert faulty.count_files() <= 6 * 8 + 5 * 5 + 25


@pytest.mark.parametrize("trials", [2, pytest.param(6, marks=pytest.mark.long)])
def test_daemons_die(faulty: Faulty, trials: int) -> None:
    """slurmctld killed just after sbatch and in mid-run, slurmdbd down at a task's death.

    Nothing is lost, and nothing runs twice.
    """
    faulty.cluster.save_state()  # the jobs of tests before are over
    # Gated: each look is a command, and what trains is to train still when one sees it; by then the
    # first attempts may have begun before the controller died, which forgot them.
    faulty.launch(steps=8, options="gated", trials=trials, max_parallel=2, grace="10s")
    faulty.cluster.kill_slurmctld()  # just after sbatch
    faulty.cluster.start_slurmctld()
    # What it has lost, launch finds out, and submits once more.
    faulty.again()
    live: list[Seen] = []

    def have_begun() -> bool:
        """Some of it may be put back, and wait for a while, or be held."""
        faulty.user.status(faulty.name)
        live[:] = faulty.live(2)
        return bool(live)

    wait_for(have_begun, 120, "a trial to train")
    worker = faulty.worker_of(live[0])
    faulty.cluster.kill_slurmctld()
    faulty.kill(worker)
    faulty.cluster.start_slurmctld()
    faulty.cluster.stop_slurmdbd()  # nobody can be asked why that task ended
    time.sleep(5)
    faulty.cluster.start_slurmdbd()
    faulty.gate.touch()
    # The killed slurmctld may have lost the finaliser, and may hold what it could not start:
    # whoever looks submits another, and releases that.
    faulty.wait_end(300)
    faulty.check_whole(trials)


def test_what_slurm_holds_is_released(faulty: Faulty) -> None:
    """Nodes cannot start a task, and Slurm holds it: when they can again, status lets it go."""
    faulty.cluster.refuse_jobs()
    faulty.launch(steps=2, trials=2, max_parallel=2, grace="10s")

    def held() -> list[list[str]]:
        return [row for row in faulty.user.queue() if row[3] == "launch failed requeued held"]

    wait_for(lambda: len(held()) == 2, 60, "both tasks to be held")
    faulty.cluster.refuse_jobs(False)
    drained = faulty.cluster.run(["sinfo", "-h", "-N", "-t", "drain", "-o", "%N"], check=True)
    for node in set(drained.stdout.split()):
        faulty.cluster.set_node(node, "RESUME")
    faulty.wait_end(120)
    faulty.check_whole(2)


def test_a_suspended_task_is_not_hung(faulty: Faulty) -> None:
    """scontrol suspend, as gang scheduling does, for longer than `stall_time`: it goes on."""
    faulty.launch(steps=10, trials=1, grace="10s", stall_time="6s")
    job = faulty.wait_steps(2, 1)[0].job
    faulty.cluster.run(["scontrol", "suspend", job], check=True)
    time.sleep(14)  # this is what is tested
    faulty.cluster.run(["scontrol", "resume", job], check=True)
    faulty.wait_end(90)
    faulty.check_whole(1)
    assert [attempt.outcome for attempt in faulty.of(0)] == ["finished"]


def test_lost_finaliser_is_submitted_again(faulty: Faulty) -> None:
    """A finaliser that is gone is missed by status; one only is submitted, and does its work."""
    faulty.launch(
        steps=4, options="held", trials=4, max_parallel=2, tasks=2, trials_per_task=1, pause_s=0.2
    )
    run, user = faulty.cluster.run, faulty.cluster.user
    ends = [row[0] for row in faulty.user.queue() if row[1].endswith("-end")]
    run(["scancel", *ends], user, check=True)
    wait_for(lambda: not any("-end" in row[1] for row in faulty.user.queue()), 60, "it to go")

    def restored() -> list[list[str]]:
        faulty.user.status(faulty.name)  # it looks every ten seconds, and submits one
        return [row for row in faulty.user.queue() if "-end" in row[1]]

    wait_for(lambda: bool(restored()), 60, "another finaliser")
    assert [row[1][-5:] for row in restored()] == ["-end1"]
    faulty.gate.touch()
    faulty.wait_end(90)
    faulty.check_whole(4)


# What each of three trainings does about memory, and how its trial ends.
MEMORY = {
    "killed": ("bytearray(600_000_000)", "out of memory"),
    "step": (
        "import os; os.system('srun -n1 --overlap python3 -c \"bytearray(600_000_000)\"'); "
        "raise SystemExit(1)",
        "out of memory",
    ),
    "survived": (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', "
        "'bytearray(600_000_000)']); "
        "from sweep.report import Reporter; Reporter().log(step=1, value=1.0)",
        "finished",
    ),
}


def test_out_of_memory(slurm_cgroup: Cluster, fresh_url: str) -> None:
    """Memory that ran out is told in all three forms; a training that goes on all the same may."""
    with contextlib.ExitStack() as stack:
        found = {form: stack.enter_context(studying(slurm_cgroup, fresh_url)) for form in MEMORY}
        for form, study in found.items():
            command = [str(study.user.bin / "python"), "-c", MEMORY[form][0]]
            study.launch(
                command=command,
                trials=1,
                retry={"max_attempts": 2},
                resources={"time": "2min", "cpus": 1, "memory": "200M"},
            )
        for form, study in found.items():
            outcome = MEMORY[form][1]
            study.wait_end(120, "finished" if outcome == "finished" else "held")
            outcomes = [attempt.outcome for attempt in study.attempts()]
            if outcome == "finished":
                assert outcomes == [outcome], study.tell()
                assert study.states() == {0: "complete"}
            else:  # twice, and nothing has reported: the study is held, with the reason
                assert outcomes == [outcome, "exhausted"], study.tell()
                assert study.states() == {0: "failed"}
                who = r"rank 0 on n\d \(srun\): " if form == "step" else ""
                said = f"2 attempts ended so, the last: {who}memory ran out"
                assert re.match(said, study.of(0)[1].reason), study.tell()


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
        faulty.launch(steps=6, options="held", trials=3, grace="10s", pause_s=0.5)
        faulty.wait_steps(3, trials=3)
        filler = trials / "filler"
        with filler.open("wb", buffering=0) as stream, pytest.raises(OSError):
            while True:
                stream.write(bytes(1024))
        faulty.gate.touch()
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


# A training that cannot work on one of the nodes, as where an image is missing.
SICK = """
import os, sys
if os.environ["SLURMD_NODENAME"] == "n2":
    sys.exit("FATAL: could not open image")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def sick_command(faulty: Faulty, pause_s: float = 0.5) -> list[str]:
    """Return the command of a training of four steps that fails at once on the node n2."""
    sick = faulty.user.write("sick.py", SICK)
    python = str(faulty.user.bin / "python")
    train = str(faulty.user.folder / "train.py")
    return [python, str(sick), train, "4", str(pause_s), "1", str(faulty.gate), "held"]


def on_node(faulty: Faulty, host: str) -> list[Seen]:
    """Return the attempts that were made on a node."""
    return [attempt for attempt in faulty.attempts() if attempt.host == host]


def test_sick_nodes(faulty: Faulty) -> None:
    """Everything fails at once on one node, sweep's own Python on another: both are avoided.

    No trial is lost to them, status says so, and the next wave stays away from them.
    """
    missing = "[ $SLURMD_NODENAME != n3 ] || exec() { builtin exec /nonexistent/python; }"
    faulty.launch(
        steps=4,
        command=sick_command(faulty),
        trials=10,
        max_parallel=4,
        slurm={"setup": [missing]},
        resources={"time": "5min", "cpus": 5},  # a node holds one task
    )
    # The others hold their trials until both nodes have shown what they are like.
    wait_for(lambda: len(on_node(faulty, "n2")) >= 3, 120, "three failures on n2")
    marks = faulty.user.runs / faulty.name / "logs/sick-nodes.txt"
    wait_for(lambda: "the node n3 is avoided: " in text_of(marks), 120, "n3 to be avoided")
    faulty.gate.touch()
    faulty.wait_end(150)
    faulty.check_whole(10)
    failed = on_node(faulty, "n2")
    assert 3 <= len(failed) <= 6, faulty.tell()
    assert {a.outcome for a in failed} == {"given back"}
    assert on_node(faulty, "n3") == []
    faulty.path = faulty.user.study(
        faulty.name,
        sick_command(faulty, 2.0),
        trials=11,
        max_parallel=1,
        keep=1000,
        slurm={"setup": [missing]},
        resources={"time": "5min", "cpus": 5},
    )
    job = faulty.again().partition("submitted ")[2].split()[0]
    notes = faulty.user.status(faulty.name)["notes"]
    assert any("the node n2 is avoided: " in note for note in notes), notes
    assert "the node n3 is avoided: sweep's own Python does not start there" in notes
    shown = faulty.cluster.run(["scontrol", "show", "job", job], check=True).stdout
    assert "ExcNodeList=n[2-3]" in shown
    faulty.wait_end(60)
    faulty.check_whole(11)


# On n2 sweep itself does not import, on n3 a library that it needs does not load.
NO_IMPORT = """
case $SLURMD_NODENAME in
    n2) export PYTHONPATH={folder}/no_sweep ;;
    n3) export PYTHONPATH={folder}/no_library ;;
esac
"""


def test_nodes_where_sweep_does_not_import(faulty: Faulty) -> None:
    """They do not eat up the array: its trials end on the other nodes, and status says why."""
    for name in ("no_sweep/sweep", "no_library/psycopg2"):
        faulty.user.make(faulty.user.folder / name)
        faulty.user.write(f"{name}/__init__.py", "raise ImportError('libpq.so.5: no such file')\n")
    setup = NO_IMPORT.format(folder=faulty.user.folder).strip().splitlines()
    faulty.launch(
        steps=4,
        pause_s=0.1,
        options="held",
        trials=20,
        max_parallel=4,
        slurm={"setup": setup},
        resources={"time": "5min", "cpus": 5},  # a node holds one task
    )
    marks = faulty.user.runs / faulty.name / "logs/sick-nodes.txt"
    wait_for(lambda: len(text_of(marks).splitlines()) >= 2, 120, "both nodes to be avoided")
    faulty.gate.touch()
    faulty.wait_end(150)
    faulty.check_whole(20)
    assert {attempt.host for attempt in faulty.attempts()} <= {"n1", "n4"}
    assert set(marks.read_text().splitlines()) == {
        f"the node {node} is avoided: sweep cannot be imported there" for node in ("n2", "n3")
    }


@pytest.mark.long
def test_sick_node_that_cannot_be_excluded(faulty: Faulty) -> None:
    """Where Slurm refuses to exclude a node, the task holds it, lest the next one falls in."""
    folder = faulty.user.make(faulty.user.folder / "wrapped")
    real = faulty.cluster.run(["which", "scontrol"], check=True).stdout.strip()
    refuse = 'case "$*" in *ExcNodeList*) echo "Access/permission denied" >&2; exit 1;; esac'
    faulty.user.write("wrapped/scontrol", f'#!/bin/bash\n{refuse}\nexec {real} "$@"\n', 0o755)
    path = f"{folder}:{faulty.user.env()['PATH']}"
    faulty.launch(
        steps=4,
        command=sick_command(faulty),
        trials=12,
        max_parallel=4,
        resources={"time": "5min", "cpus": 5},
        env={"PATH": path, "SWEEP_SICK_HOLD": "15"},
    )
    wait_for(lambda: len(on_node(faulty, "n2")) >= 3, 120, "three failures on n2")
    faulty.gate.touch()
    faulty.wait_end(150)
    faulty.check_whole(12)
    notes = faulty.user.status(faulty.name)["notes"]
    assert any("the node n2 is sick, and could not be excluded: " in note for note in notes)
    failed = on_node(faulty, "n2")
    assert 3 <= len(failed) <= 6, faulty.tell()
    faulty.user.wait_empty(60)

    def held() -> list[int]:
        rows = faulty.cluster.sacct(failed[0].job, "JobID,NodeList,ElapsedRaw")
        return [int(row[2]) for row in rows if row[1] == "n2" and "." not in row[0]]

    # Accounting lags behind.
    wait_for(lambda: max(held(), default=0) >= 15, 60, "a task that held its node for 15 s")


@pytest.mark.long
def test_slurmstepd_dies(faulty: Faulty) -> None:
    """Slurm's own process above a task is killed: the trial ends, and its task pulls no other.

    Slurm starts the next task meanwhile, which gets no trial before: one at a time.
    """
    faulty.launch(steps=10, trials=3, max_parallel=1, grace="10s")
    live = faulty.wait_steps(3, trials=1)
    faulty.kill(parent(faulty.worker_of(live[0])))
    faulty.wait_end(400)
    faulty.check_whole(3)
    beside = faulty.sql(
        "SELECT t.number, a.claimed, a.ended, b.claimed FROM sweep_attempt a "
        "JOIN trials t USING (trial_id) JOIN studies s USING (study_id) JOIN sweep_attempt b "
        "ON a.claimed < b.claimed AND a.ended > b.claimed JOIN trials u ON u.trial_id = b.trial_id "
        f"AND u.study_id = t.study_id WHERE s.study_name = '{faulty.name}'"
    )
    assert beside == []


@pytest.mark.long
def test_long_trials_under_a_short_limit(faulty: Faulty) -> None:
    """Trials of 300 s under a limit of a minute, with a checkpoint every 10 s: all complete."""
    faulty.launch(steps=300, trials=2, every=10, grace="15s", resources={"time": "1min", "cpus": 1})
    faulty.wait_end(1200)
    faulty.check_whole(2, interval=10)
