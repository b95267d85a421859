"""The test cluster is a real Slurm: what other tests rely on is there, and breaks as told."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path

import pytest

from tests.cluster import machine, processes
from tests.cluster.cluster import Cluster
from tests.needs import require
from tests.waiting import text_of

pytestmark = pytest.mark.slurm


def wait_for_rows(slurm: Cluster, job: str, count: int, fields: str) -> list[list[str]]:
    """Return sacct's rows of an ended job once there are enough (they lag by seconds)."""
    rows: list[list[str]] = []

    def are_there() -> bool:
        rows[:] = slurm.sacct(job, fields)
        return len(rows) >= count and all(row[1] not in ("PENDING", "RUNNING") for row in rows)

    processes.wait_for(are_there, 60, f"sacct's rows of job {job}")
    return rows


def state_of(slurm: Cluster, job: str) -> str:
    return slurm.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip()


def wait_free(slurm: Cluster) -> None:
    """Wait until no job has GPUs: one that is completing has them yet, though its srun is back."""
    processes.wait_for(lambda: not slurm.run(["squeue", "-h"]).stdout.strip(), 60, "no job")


def test_capped_array_completes(slurm: Cluster) -> None:
    """An array of 20 tasks, 5 at a time, runs to its end and is accounted for."""
    job = slurm.submit("true", "--array=0-19%5", "--output=%A_%a.out")
    slurm.wait(job, 120)
    rows = wait_for_rows(slurm, job, 40, "JobID,State")
    tasks = sorted(row[0] for row in rows if "." not in row[0])
    assert tasks == sorted(f"{job}_{index}" for index in range(20))
    assert {row[1] for row in rows} == {"COMPLETED"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--gres=gpu:a100:2"], "0,1"),
        (["--gpus=a100:1"], "0"),
        (["--gres=gpu:4"], "0,1,2,3"),
        ([], "none"),
    ],
)
def test_gpus_are_handed_out(slurm: Cluster, options: list[str], expected: str) -> None:
    """A GPU request sets CUDA_VISIBLE_DEVICES in the job, as the user who isn't root."""
    wait_free(slurm)
    echo = "echo ${CUDA_VISIBLE_DEVICES:-none} $(id -un)"
    done = slurm.run(["srun", "-n1", *options, "bash", "-c", echo], user=slurm.user, check=True)
    assert done.stdout.split() == [expected, slurm.user]


def test_shards_are_handed_out(slurm: Cluster) -> None:
    """A request for a part of a GPU sees one GPU and its shards."""
    wait_free(slurm)
    echo = "echo $CUDA_VISIBLE_DEVICES $SLURM_SHARDS_ON_NODE"
    srun = ["srun", "-n1", "--gres=shard:16", "bash", "-c", echo]
    assert slurm.run(srun, user=slurm.user, check=True).stdout.split() == ["0", "16"]


def test_multi_node_step(slurm: Cluster) -> None:
    """A step over three nodes runs on each, and the nodes' names resolve."""
    srun = ["srun", "-N3", "-n3", "bash", "-c", "echo $SLURMD_NODENAME"]
    nodes = sorted(slurm.run(srun, user=slurm.user, check=True).stdout.split())
    assert len(set(nodes)) == 3
    assert set(nodes) <= set(slurm.nodes)
    assert socket.gethostbyname(nodes[0]) == "127.0.0.1"


def test_requeue_runs_again(slurm: Cluster) -> None:
    """A requeued job starts again under its number, with a restart count."""
    job = slurm.submit(
        "echo run ${SLURM_RESTART_COUNT:-0}; [ ${SLURM_RESTART_COUNT:-0} = 1 ] || sleep 300",
        "--requeue",
        "--open-mode=append",
        "--output=requeue-%j.out",
    )
    log = slurm.home / f"requeue-{job}.out"
    processes.wait_for(lambda: "run 0" in text_of(log), 60, "the first run")
    slurm.run(["scontrol", "requeue", job], user=slurm.user, check=True)
    slurm.wait(job, 120)
    assert [line for line in log.read_text().splitlines() if line.startswith("run")] == [
        "run 0",
        "run 1",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--array=0-50", "--qos=small"], "QOSMaxSubmitJobPerUserLimit"),
        (["--array=0-20", "--account=proj2"], "AssocMaxSubmitJobLimit"),
        (["--array=0-1001"], "Invalid job array specification"),
        (["--partition=nowhere"], "invalid partition specified: nowhere"),
        (["--account=nobody"], "Invalid account or account/partition combination specified"),
    ],
)
def test_limits_refuse(slurm: Cluster, options: list[str], words: str) -> None:
    """What the site does not allow is refused in Slurm's own words."""
    done = slurm.run(["sbatch", *options, "--wrap=true"], user=slurm.user)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("partition", "ends"), [("preempt", "PENDING"), ("preemptc", "PREEMPTED")])
def test_high_preempts(clean_slurm: Cluster, partition: str, ends: str) -> None:
    """A job in ``high`` takes the node of a preemptable one, which is requeued or cancelled."""
    slurm = clean_slurm
    low = slurm.submit("sleep 300", f"--partition={partition}", "-wn1", "-c8")
    processes.wait_for(lambda: state_of(slurm, low) == "RUNNING", 60, "the low job to run")
    high = slurm.submit("sleep 300", "--partition=high", "-wn1", "-c8")
    processes.wait_for(lambda: state_of(slurm, high) == "RUNNING", 90, "the high job to run")
    if ends == "PENDING":
        assert state_of(slurm, low) == "PENDING"
    else:
        assert wait_for_rows(slurm, low, 1, "JobID,State")[0][1] == ends


@pytest.mark.long
def test_killed_slurmd_loses_the_node(clean_slurm: Cluster) -> None:
    """The job of a killed slurmd is requeued while its first process lives on."""
    slurm = clean_slurm
    script = "echo pid $$; [ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || sleep 300"
    job = slurm.submit(
        script, "-wn2", "--requeue", "--open-mode=append", "--output=lost-%j.out", "-c8"
    )
    log = slurm.home / f"lost-{job}.out"
    processes.wait_for(lambda: "pid" in text_of(log), 60, "the job to run")
    first = int(log.read_text().split()[1])
    slurm.kill_slurmd("n2")
    processes.wait_for(lambda: state_of(slurm, job) == "PENDING", 120, "the requeue")
    assert processes.read_start(first) is not None


@pytest.mark.long
def test_daemons_break_and_come_back(clean_slurm: Cluster) -> None:
    """A paused or killed slurmctld does not answer, sacct fails without slurmdbd; all heal."""
    slurm = clean_slurm
    slurm.save_state()
    job = slurm.submit("sleep 300")
    slurm.pause_slurmctld()
    asked = slurm.run(["timeout", "3", "squeue", "-h"], timeout_s=60)
    slurm.resume_slurmctld()
    assert asked.returncode == 124
    slurm.kill_slurmctld()
    assert slurm.run(["squeue", "-h"], timeout_s=60).returncode == 1
    slurm.stop_slurmdbd()
    assert slurm.run(["sacct", "-n"], timeout_s=60).returncode == 1
    slurm.heal()
    assert slurm.running() == slurm.daemons
    assert state_of(slurm, job) == ""


@pytest.mark.long
def test_drained_node_is_healed(clean_slurm: Cluster) -> None:
    """A node set DOWN is idle again after healing."""
    clean_slurm.set_node("n3", "DOWN")
    sinfo = ["sinfo", "-h", "-N", "-n", "n3", "-p", "main", "-o", "%t %E"]
    assert clean_slurm.run(sinfo).stdout.split() == ["down", "test"]
    clean_slurm.heal()
    assert clean_slurm.run(sinfo).stdout.split() == ["idle", "none"]


def test_memory_limit_kills(slurm_cgroup: Cluster) -> None:
    """Under cgroups a job that takes more memory than it asked for is OUT_OF_MEMORY."""
    eat = "python3 -c 'x = bytearray(300_000_000); print(len(x))'"
    job = slurm_cgroup.submit(f"exec {eat}", "--mem=100M", "--no-requeue", "-o", "%j.out")
    slurm_cgroup.wait(job, 90)
    rows = wait_for_rows(slurm_cgroup, job, 2, "JobID,State,ExitCode")
    assert rows[0][1:] == ["OUT_OF_MEMORY", "0:125"]


def hosts_without_clusters() -> str:
    """Return what the hosts file says but for the clusters that stand there now, others' too."""
    marks = r"# begin of the Slurm test cluster in .*?\n# end of [^\n]*\n"
    with machine.lock_machine():
        return re.sub(marks, "", machine.HOSTS.read_text(), flags=re.DOTALL)


def test_down_leaves_nothing() -> None:
    """After down, also by an object that did not bring it up, nothing is left on the machine."""
    require("slurm")
    root = Path(f"/tmp/sweep-down-{os.getpid()}")
    hosts = hosts_without_clusters()
    try:
        cluster = Cluster(root, nodes=1).up()
        uid = cluster._uid()
        job = cluster.submit("trap '' TERM; sleep 300 & wait; sleep 300")
        processes.wait_for(lambda: state_of(cluster, job) == "RUNNING", 60, "the job to run")
        processes.wait_for(
            lambda: len(processes.find_leftovers(root, uid)) >= 7, 60, "the job's processes"
        )
        # By their start as well: once the account is gone its number may be another cluster's.
        were = {pid: processes.read_start(pid) for pid in processes.find_leftovers(root, uid)}
        Cluster(root).down()
        left = [pid for pid, start in were.items() if start == processes.read_start(pid)]
        assert [pid for pid in left if were[pid]] == []
        assert processes.find_leftovers(root, None) == []
        assert hosts_without_clusters() == hosts
        assert str(root) not in machine.HOSTS.read_text()
        assert list(root.iterdir()) == []
    finally:
        Cluster(root).down()
        shutil.rmtree(root, ignore_errors=True)
