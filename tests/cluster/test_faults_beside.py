"""Faults that leave other studies alone: each has a study of its own, all of them at once.

They wait most of the time, for Slurm's shortest time limit or for a node to be given up; side by
side they take as long as the slowest.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, parent, studying
from tests.cluster.processes import wait_for
from tests.postgres_fixture import Server

pytestmark = pytest.mark.slurm

A_NODE = {"time": "20min", "cpus": 8, "memory": "200M"}
A_MINUTE = {"time": "1min", "cpus": 1, "memory": "200M"}
TWO_MINUTES = {**A_MINUTE, "time": "2min"}
# Slow until the fault has happened, quick afterwards.
SLOW = {"steps": 150, "options": "hasten"}
# At its third step it waits for the fault, however long the launches of the others take.
HELD = {"steps": 20, "options": "hasten held"}
DEAF = {"steps": 150, "options": "hasten deaf", "every": 5}


# What each test looks at.
STUDIES = {
    "test_whole_array_is_cancelled": {"whole"},
    "test_preemption": {"requeued", "preempted"},
    "test_slurmstepd_dies": {"stepd"},
    "test_same_task_runs_twice": {"twice"},
    "test_time_limit_with_grace": {"grace"},
    "test_time_limit_without_grace": {"deaf"},
}
# The first three have a node each; the others share the last.
LAUNCHES: dict[str, dict[str, Any]] = {
    "twice": {**SLOW, "grace": "10s", "resources": A_NODE},
    "requeued": {**HELD, "grace": "10s", "resources": A_NODE, "slurm": {"partition": "preempt"}},
    "preempted": {**HELD, "grace": "10s", "resources": A_NODE, "slurm": {"partition": "preemptc"}},
    "deaf": {**DEAF, "grace": "1s", "resources": A_MINUTE},
    # Slurm looks every 30 s whether a signal is due: it comes 45 to 75 s after the start, when a
    # busy machine, too, has started the task, and leaves time enough.
    "grace": {**SLOW, "grace": "75s", "resources": TWO_MINUTES},
    "stepd": {"steps": 6, "options": "held", "grace": "10s", "pause_s": 0.5},
    "whole": {
        "steps": 6,
        "options": "hasten held",
        "grace": "10s",
        "pause_s": 0.5,
        "trials": 6,
        "max_parallel": 3,
    },
}


@pytest.fixture(scope="module")
def scenes(
    request: pytest.FixtureRequest, slurm: Cluster, postgres_server: Server, template_database: str
) -> Iterator[dict[str, Faulty]]:
    """Every study of the tests that were asked for, launched, and its fault under way."""
    ours = [item for item in request.session.items if getattr(item, "module", 0) is request.module]
    asked = set().union(*(STUDIES[getattr(item, "originalname", "")] for item in ours))
    name = f"t{secrets.token_hex(6)}"
    postgres_server.sql(f"CREATE DATABASE {name} TEMPLATE {template_database}")
    url = postgres_server.url(name)
    with contextlib.ExitStack() as stack:
        stack.callback(slurm.heal)
        found = {}
        for name in (name for name in LAUNCHES if name in asked):
            found[name] = stack.enter_context(studying(slurm, url))
            found[name].launch(**{"trials": 1, **LAUNCHES[name]})
        if "twice" in found:
            slurm.kill_slurmd(found["twice"].wait_steps(2, 1)[0].host)
        for mode in found.keys() & STUDIES["test_preemption"]:
            host = found[mode].wait_steps(2, 1)[0].host
            slurm.submit("sleep 2", "-p", "high", "-c8", "-w", host, "-o", "/dev/null")
        if "stepd" in found:
            live = found["stepd"].wait_steps(2, 1)[0]
            found["stepd"].kill(parent(found["stepd"].worker_of(live)))
        if "whole" in found:
            lives = found["whole"].wait_steps(2, 3)
            slurm.run(["scancel", lives[0].job], slurm.user, check=True)
            for live in lives:
                found["whole"].wait_outcome(live.trial)
        for mode in found.keys() & {"stepd", "whole"}:  # what happens to them has happened
            found[mode].gate.touch()
        yield found
        for study in found.values():
            slurm.run(["scancel", *{attempt.job for attempt in study.attempts()}], slurm.user)


def test_whole_array_is_cancelled(scenes: dict[str, Faulty]) -> None:
    """After scancel of the array nothing is queued, the study is stopped; launch does the rest."""
    study = scenes["whole"]
    job = study.attempts()[0].job

    def is_queued() -> bool:
        return any(row[0].partition("_")[0] == job for row in study.user.queue())

    wait_for(lambda: not is_queued(), 60, "its end")
    status = study.wait_end(60, "stopped")
    assert status["reason"] == f"its array {job} was cancelled by hand (scancel)"
    assert status["counts"]["cancelled"] == 0
    study.again()
    study.wait_end(150)
    study.check_whole(6)


@pytest.mark.parametrize("mode", ["requeued", "preempted"])
def test_preemption(scenes: dict[str, Faulty], mode: str) -> None:
    """A preempted trial goes on from its checkpoint, whether Slurm requeues or cancels its task."""
    study = scenes[mode]
    study.wait_end(150)
    study.check_whole(1)
    first = study.of(0)[0]
    assert (first.outcome, first.reason) == ("interrupted", "its task was preempted")


def test_slurmstepd_dies(scenes: dict[str, Faulty]) -> None:
    """Slurm's own process above a task is killed: the trial ends, and its task pulls no other."""
    study = scenes["stepd"]
    study.wait_end(60)
    study.check_whole(1)
    said = "the scheduler's process above this task is gone; it pulls no further trial"
    wait_for(lambda: said in study.log_of(study.of(0)[0]), 60, "the task to end")


def test_same_task_runs_twice(scenes: dict[str, Faulty]) -> None:
    """A node is cut off and its task runs elsewhere: what the first run still writes is refused."""
    study = scenes["twice"]
    wait_for(lambda: len(study.attempts()) > 1, 150, "the second run of the task")
    first = study.of(0)[0]
    assert (first.outcome, first.reason) == ("node failed", "its node failed")
    study.wait_dead(first)
    first = study.of(0)[0]
    study.wait_end(60)
    assert replace(study.of(0)[0], steps=first.steps) == first, "a stale write was accepted"
    said = "no longer owns its trial; nothing was written"
    wait_for(lambda: said in study.log_of(first), 60, "the first run to be refused")
    first, second = study.of(0)
    assert second.host != first.host and second.outcome == "finished"
    # What the first run reported when it was stale, before the checkpoint that was taken, counts.
    assert second.steps == tuple(range(second.steps[0], study.steps + 1))
    assert second.steps[0] - first.steps[-1] == 1, study.tell()


def test_time_limit_with_grace(scenes: dict[str, Faulty]) -> None:
    """A trial longer than its task's limit is asked to save and leave, and loses nothing."""
    study = scenes["grace"]
    study.wait_end(180)
    study.check_whole(1)
    ends = Counter(attempt.outcome for attempt in study.attempts())
    assert ends["timeout"] >= 1 and ends["finished"] == 1, study.tell()


def test_time_limit_without_grace(scenes: dict[str, Faulty]) -> None:
    """A training that heeds nothing is ended at the limit, and goes on from its checkpoint."""
    study = scenes["deaf"]
    study.wait_end(240)
    study.check_whole(1, interval=5)
    assert len(study.attempts()) == 2, study.tell()
