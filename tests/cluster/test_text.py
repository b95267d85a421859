"""schedulers/slurm/text: command lines and parsers against the real Slurm."""

from __future__ import annotations

import os

import pytest

from sweep.core.secrets import ask_environment, clean_environment
from sweep.schedulers.slurm.text.accounting import TaskRun, find_latest_runs, read_sacct, sacct_argv
from sweep.schedulers.slurm.text.limits import (
    associations_argv,
    config_argv,
    find_limits,
    parse_associations,
    parse_config,
    parse_partitions,
    parse_qos,
    partitions_argv,
    qos_argv,
)
from sweep.schedulers.slurm.text.notation import parse_time
from sweep.schedulers.slurm.text.queue import QueuedTask, collect_tasks, read_squeue, squeue_argv
from sweep.schedulers.slurm.text.reasons import explain_reason
from sweep.schedulers.slurm.text.scontrol import (
    cancel_argv,
    check_update,
    exclude_argv,
    excluded_argv,
    parse_excluded,
    throttle_argv,
)
from sweep.schedulers.slurm.text.submit import ArrayRequest, parse_sbatch, sbatch_argv
from tests.cluster import processes
from tests.cluster.cluster import Cluster
from tests.waiting import text_of


def submit(slurm: Cluster, name: str, script: str, **fields: object) -> str:
    """Submit an array as the cluster's user, with an environment full of traps; return its id."""
    path = slurm.home / f"{name}.sh"
    path.write_text(f"#!/bin/bash\n{script}\n")
    request = ArrayRequest(name, str(path), f"{slurm.home}/{name}-%A_%a.log", **fields)  # type: ignore[arg-type]
    traps = {"SBATCH_ARRAY_INX": "0-99", "SLURM_JOB_ID": "1", "WANDB_API_KEY": "canary-4711"}
    environment = clean_environment({**slurm.env(), **traps})
    argv = ["env", "-i", *(f"{key}={value}" for key, value in environment.items())]
    done = slurm.run([*argv, *sbatch_argv(request)], user=slurm.user)
    answer = parse_sbatch(done.stdout, done.stderr, done.returncode)
    assert answer.kind == "submitted", answer.words
    return answer.job


def look(slurm: Cluster, **question: object) -> dict[tuple[str, int], QueuedTask]:
    done = slurm.run(
        squeue_argv(**question),  # type: ignore[arg-type]
        user=slurm.user,
        env=ask_environment({"SQUEUE_FORMAT": "%i", "SQUEUE_STATES": "FAILED"}),
    )
    return collect_tasks(read_squeue(done.stdout, done.stderr, done.returncode))


def account(slurm: Cluster, job: str) -> dict[tuple[str, int], TaskRun]:
    environment = ask_environment({"SACCT_FORMAT": "User"})
    done = slurm.run(sacct_argv([job]), user=slurm.user, env=environment)
    return find_latest_runs(read_sacct(done.stdout, done.stderr, done.returncode))


def test_array_from_submission_to_accounting(clean_slurm: Cluster) -> None:
    """A wave is submitted, found by its token, capped, changed, cut and accounted for."""
    slurm = clean_slurm
    for odd in ("a|b c", "a\nb|RUNNING|x", "é,%;$(id)"):  # foreign jobs beside ours
        slurm.run(["sbatch", "-J", odd, "-o", "/dev/null", "--wrap=sleep 300"], check=True)
    job = submit(slurm, "wave-1", "env; sleep 300", size=10, throttle=2, gpus="a100:1", cpus=1)

    def count_running() -> int:
        tasks = look(slurm, names=["wave-1"], user=slurm.user)
        return sum(task.state == "RUNNING" for task in tasks.values())

    processes.wait_for(lambda: count_running() == 2, 60, "two tasks to run")
    tasks = look(slurm, names=["wave-1"], user=slurm.user)
    assert sorted(tasks) == [(job, index) for index in range(10)]
    assert {task.phase for task in tasks.values()} == {"pending", "running"}
    assert explain_reason(tasks[job, 9].reason).words != ""
    assert look(slurm, jobs=[job], names=["another"], user=slurm.user) == {}
    assert look(slurm, jobs=["987654"]) == {}

    done = slurm.run(throttle_argv(job, 3), user=slurm.user)
    check_update("scontrol update", done.stdout, done.stderr, done.returncode)
    processes.wait_for(lambda: count_running() == 3, 60, "the third task to run")
    done = slurm.run(exclude_argv(job, ["n3", "n4"]), user=slurm.user)
    check_update("scontrol update", done.stdout, done.stderr, done.returncode)
    done = slurm.run(excluded_argv(job), user=slurm.user)
    assert parse_excluded(done.stdout) == ("n3", "n4")

    # It is called running before its script begins.
    log = slurm.home / f"wave-1-{job}_0.log"
    processes.wait_for(lambda: "CUDA_VISIBLE_DEVICES=" in text_of(log), 60, "its environment")
    done = slurm.run(cancel_argv(job, [0, 8, 9]), user=slurm.user)
    check_update("scancel", done.stdout, done.stderr, done.returncode)
    processes.wait_for(
        lambda: (
            look(slurm, jobs=[job], ended=False).keys() == {(job, index) for index in range(1, 8)}
        ),
        60,
        "elements 0, 8 and 9 alone to go",
    )
    done = slurm.run(cancel_argv(job, pending_only=True, name="wave-1"), user=slurm.user)
    check_update("scancel", done.stdout, done.stderr, done.returncode)
    assert all(task.phase == "running" for task in look(slurm, jobs=[job], ended=False).values())
    done = slurm.run(cancel_argv(job, name="wave-1"), user=slurm.user)
    check_update("scancel", done.stdout, done.stderr, done.returncode)
    uid = os.stat(slurm.home).st_uid

    def ends() -> set[tuple[str, int | None]]:
        return {(run.state, run.cancelled_by) for run in account(slurm, job).values()}

    # An element's end is known before who cancelled it.
    processes.wait_for(lambda: ends() == {("CANCELLED", uid)}, 60, "sacct to know of the end")
    assert "canary-4711" not in log.read_text()


def test_signal_reaches_the_batch_process(slurm: Cluster) -> None:
    """USR1 comes before the time limit to the process that the batch script became."""
    script = "exec bash -c 'trap \"echo got; exit 0\" USR1; while true; do sleep 0.2; done'"
    job = submit(slurm, "grace-1", script, size=1, time_limit_s=60, grace_s=50)
    slurm.wait(job, 120)
    log = slurm.home / f"grace-1-{job}_0.log"
    assert log.read_text() == "got\n"


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("exec python3 -c 'bytearray(400_000_000)'", "OUT_OF_MEMORY"),
        ("srun python3 -c 'bytearray(400_000_000)'; exit 1", "FAILED"),
        ("srun python3 -c 'bytearray(400_000_000)'; exit 0", "COMPLETED"),
    ],
)
def test_out_of_memory(slurm_cgroup: Cluster, script: str, state: str) -> None:
    """Memory that ran out is found in each of its three forms."""
    job = submit(slurm_cgroup, "oom-1", script, size=1, memory_mb=100, requeue=False)
    slurm_cgroup.wait(job, 120)

    def has_ended() -> bool:
        runs = account(slurm_cgroup, job)
        return bool(runs) and all(
            run.phase == "ended" and all(step.state != "RUNNING" for step in run.steps)
            for run in runs.values()
        )

    processes.wait_for(has_ended, 60, "sacct to know of the end")
    run = account(slurm_cgroup, job)[job, 0]
    assert (run.state, run.is_out_of_memory) == (state, True)


def test_limits_are_read(slurm: Cluster) -> None:
    """What the site allows is read from scontrol and sacctmgr."""

    def ask(argv: list[str]) -> str:
        return slurm.run(argv, user=slurm.user, check=True).stdout

    config = parse_config(ask(config_argv()))
    assert (config.max_array_size, config.version[:3], config.accounting) == (1001, "22.", True)
    partitions = parse_partitions(ask(partitions_argv("short")))
    every = parse_associations(ask(associations_argv(slurm.user)))
    assert {account.cluster for account in every} == {"sweeptest", "other"}
    accounts = parse_associations(ask(associations_argv(slurm.user, config.cluster)))
    assert {account.cluster for account in accounts} == {"sweeptest"}
    qos = parse_qos(ask(qos_argv(["small"])))
    assert [account.account for account in accounts] == ["proj1", "proj2"]
    assert [account.is_default for account in accounts] == [True, False]
    limits = find_limits(config, partitions, accounts[:1], qos)
    assert (limits.array_size, limits.submitted, limits.time_s) == (1001, 50, 120)
    assert parse_time(ask(["sinfo", "-h", "-p", "short", "-o", "%l"])) == 120
