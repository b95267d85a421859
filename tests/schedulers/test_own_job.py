"""The job that a process runs in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.schedulers.slurm.own_job import own_job, requeue_self


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
    requeue_self()
    assert heard.read_text() == asked


def test_own_job() -> None:
    assert own_job({"SLURM_JOB_ID": "70", "SLURMD_NODENAME": "n3"}) == ("70", "n3")
    assert own_job({}) == ("", "")
