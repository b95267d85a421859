"""A short job beside all studies: its folder is removed once nothing works in it any more."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.control import short_job
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import ENDED, RUNNING, ArrayJob, TaskState
from tests.study_rows import make_study


def test_the_folder_stays_until_the_scheduler_has_wound_up(tmp_path: Path) -> None:
    """A task that has ended is not all: what the executor runs beside it still writes there."""
    runs = Runs(tmp_path / "runs")
    study = make_study()
    there = []
    wound_up = [False, False, True]

    def submit(job: ArrayJob) -> str:
        (job.cwd / "result.json").write_text(json.dumps({"done": True}))
        return "7"

    def has_wound_up(jobs: list[str]) -> bool:
        there.append((jobs, folder.root.is_dir()))
        return wound_up.pop(0)

    schedule: Any = SimpleNamespace(
        submit=submit,
        poll=lambda jobs: {(jobs[0], 0): TaskState(ENDED)},
        has_wound_up=has_wound_up,
        shares_this_machine=True,
        is_cheap_to_ask=True,
    )
    with short_job.folder_in(runs, ".asked", study) as folder:
        went = short_job.run(
            study, folder, schedule, "--x", print, 5.0, time_limit_s=60, does="asks"
        )
    assert (went.job, went.found, went.problem) == ("7", {"done": True}, None)
    assert there == [(["7"], True)] * 3
    assert not runs.root.exists()


def test_interrupted_before_the_number_of_the_job_is_known(tmp_path: Path) -> None:
    """Ctrl-C under sbatch: the job got in all the same. It is cancelled by its name, and the folder
    stays until it writes no more."""
    runs = Runs(tmp_path / "runs")
    study = make_study()
    folder: StudyFolder
    did: list[tuple[str, bool]] = []

    def note(what: str) -> None:
        did.append((what, folder.root.is_dir()))

    def submit(job: ArrayJob) -> str:
        raise KeyboardInterrupt

    def poll(jobs: list[str]) -> dict[tuple[str, int], TaskState]:
        note(f"asked for {jobs[0]}")
        return {(jobs[0], 0): TaskState(ENDED if len(did) > 2 else RUNNING)}

    schedule: Any = SimpleNamespace(
        submit=submit,
        find=lambda token: ["7"] if token == folder.root.name else [],
        cancel=lambda job: note(f"cancelled {job}"),
        poll=poll,
        has_wound_up=lambda jobs: True,
    )
    with pytest.raises(KeyboardInterrupt), short_job.folder_in(runs, ".asked", study) as folder:
        short_job.run(study, folder, schedule, "--x", print, 5.0, time_limit_s=60, does="asks")
    assert did == [("cancelled 7", True), ("asked for 7", True), ("asked for 7", True)]
    assert not runs.root.exists()
