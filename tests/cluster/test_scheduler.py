"""The laws of a scheduler, held by Slurm itself."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.core.paths import StudyFolder
from sweep.core.scheduler import ENDED, JobFate, Scheduler, TaskState
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.schedulers.scheduler_contract import SchedulerContract
from tests.study_rows import make_study

pytestmark = pytest.mark.slurm

# The essence of the contract, on a cluster where each element takes seconds; the rest is long.
SHORT = {
    "test_states_follow_an_element",
    "test_the_throttle_changes_live",
    "test_cancel_some",
    "test_after_runs_once_when_all_have_ended",
    "test_limits_are_the_sites",
    "test_time_left",
    "test_what_became_of_a_job",
}


class OnSlurm(SchedulerContract):
    """A real cluster; elements take seconds to start and end."""

    shortest_limit_s = 60

    @pytest.fixture
    def folder(self, slurm: Cluster) -> Path:
        path = slurm.home / uuid.uuid4().hex[:8]
        path.mkdir()
        return path

    @pytest.fixture
    def scheduler(
        self, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SlurmScheduler]:
        env = slurm.env("root")
        for name in ("PATH", "SLURM_CONF"):
            monkeypatch.setenv(name, env[name])
        study = make_study()
        quick = dataclasses.replace(study.resources, cpus=1, memory_mb=50)
        yield SlurmScheduler(
            StudyFolder(tmp_path / "study"), dataclasses.replace(study, resources=quick), env
        )
        slurm.run(["scancel", "-u", "root"])

    def states(self, scheduler: Scheduler, job: str) -> dict[int, TaskState]:
        """Return the states, what a signal ended as a shell says it."""
        return {
            index: dataclasses.replace(state, exit_code=128 + state.signal)
            if state.signal
            else state
            for index, state in super().states(scheduler, job).items()
        }

    def wait_states(self, scheduler: Scheduler, job: str, wanted: dict[int, str]) -> None:
        """Wait for states; an element that was cancelled before it started may be gone.

        Slurm lists such an element nowhere (22.05), or in one row for all of them.
        """
        states = self.states

        def with_gone(asked: Scheduler, of: str) -> dict[int, TaskState]:
            found = states(asked, of)
            for index, state in found.items():
                if state.word == "CANCELLED" and state.cancelled_by is None:
                    found[index] = dataclasses.replace(state, word="not in accounting yet")
            gone = [i for i, word in wanted.items() if word == "CANCELLED" and i not in found]
            return found | {i: TaskState(ENDED, "CANCELLED") for i in gone}

        self.states = with_gone  # type: ignore[method-assign]
        try:
            super().wait_states(scheduler, job, wanted)
        finally:
            self.states = states  # type: ignore[method-assign]

    def test_a_job_is_excluded_from_a_node(self, scheduler: SlurmScheduler, folder: Path) -> None:
        """Nodes add up: what an array avoids already it goes on avoiding."""
        job = scheduler.submit(self.job(folder, "sleep 60", size=9, throttle=1))
        scheduler.exclude(job, "n2")
        scheduler.exclude(job, "n4")
        answer = scheduler.run(
            ["squeue", "-h", "-t", "PENDING", "-j", job, "-o", "%x"], scheduler.environ, 30
        )
        assert "n[2,4]" in answer.stdout

    def test_limits_are_the_sites(self, scheduler: SlurmScheduler) -> None:
        """MaxArraySize and the partition's MaxTime are read."""
        limits = scheduler.limits()
        assert (limits.array_size, limits.time_s) == (1001, 86400)

    def test_what_became_of_a_job(self, scheduler: SlurmScheduler, folder: Path) -> None:
        """Whoever serves the data next asks: in the queue, over, or over where nobody can look."""
        job = scheduler.submit(self.job(folder, "sleep 60", size=1))
        self.wait_states(scheduler, job, {0: "running"})
        asked = ["squeue", "-h", "-j", job, "-o", "%N"]
        node = scheduler.run(asked, scheduler.environ, 30).stdout.strip()
        assert scheduler.job_fate(job, node) is JobFate.LIVES
        scheduler.cancel(job)
        wait_for(lambda: scheduler.job_fate(job, node) is JobFate.ENDED, 60, "the job to be over")
        update = ["scontrol", "update", f"NodeName={node}"]
        scheduler.run([*update, "State=DRAIN", "Reason=test"], scheduler.environ, 30)
        try:
            assert scheduler.job_fate(job, node) is JobFate.UNPROVED
        finally:
            scheduler.run([*update, "State=RESUME"], scheduler.environ, 30)

    def test_time_left(self, scheduler: SlurmScheduler, folder: Path) -> None:
        """A running element knows how long it may go on."""
        job = scheduler.submit(self.job(folder, "sleep 60", time_limit_s=600))
        self.wait_states(scheduler, job, {0: "running"})
        left_s = scheduler.time_left_s(job, 0)
        assert left_s is not None and 500 < left_s <= 600
        scheduler.cancel(job)
        assert all(s.state == ENDED or s.word for s in self.states(scheduler, job).values())


class TestSlurm(OnSlurm):
    """Its short form."""


@pytest.mark.long
class TestSlurmInFull(OnSlurm):
    """The rest of it."""


for _name in [name for name in dir(OnSlurm) if name.startswith("test_")]:
    setattr(TestSlurmInFull if _name in SHORT else TestSlurm, _name, None)  # not collected there
