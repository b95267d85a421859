"""What a task of Slurm's knows of itself, and asks from within."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.core.paths import StudyFolder
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from tests.study_rows import make_study


@pytest.mark.parametrize(("job", "asked"), [("70", "requeue 70\n"), (None, "")])
def test_a_job_requeues_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str | None, asked: str
) -> None:
    """By its own number; outside Slurm nothing happens."""
    program, heard = tmp_path / "scontrol", tmp_path / "heard"
    program.write_text(f'#!/bin/bash\necho "$@" >> {heard}\n')
    program.chmod(0o755)
    heard.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if job is None:
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    else:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    schedule = SlurmScheduler(StudyFolder(tmp_path / "study"), make_study(), os.environ)
    schedule.requeue(os.environ)
    assert heard.read_text() == asked


@pytest.mark.parametrize(
    ("environ", "task", "end"),
    [
        ({}, (None, None), None),
        ({"SLURM_JOB_ID": "9"}, ("9", None), None),
        (
            {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"},
            ("7", 1),
            None,
        ),
        ({"SLURM_JOB_ID": "9", "SLURM_JOB_END_TIME": "500"}, ("9", None), 500.0),
        ({"SLURM_JOB_END_TIME": "500", "SWEEP_END_TIME": "400"}, (None, None), 400.0),
        ({"SWEEP_JOB": "8", "SWEEP_ARRAY_INDEX": "2"}, ("8", 2), None),
    ],
)
def test_a_task_knows_itself(
    environ: dict[str, str], task: tuple[str | None, int | None], end: float | None
) -> None:
    """By Slurm's variables, or what the batch script makes of them."""
    assert SlurmScheduler.task_of(environ) == task
    assert SlurmScheduler.end_time_of(environ) == end
    node = SlurmScheduler.node_of({**environ, "SLURMD_NODENAME": "n3"})
    assert (node, SlurmScheduler.node_of(environ)) == ("n3", os.uname().nodename)


def test_own_job() -> None:
    """Id and node of the job; empty outside of one."""
    environ = {"SLURM_JOB_ID": "70", "SLURMD_NODENAME": "n3"}
    assert SlurmScheduler.job_of(environ) == ("70", "n3")
    assert SlurmScheduler.job_of({}) == ("", "")
