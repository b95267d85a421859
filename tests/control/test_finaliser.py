"""When a finaliser holds a study whose tasks end without a trial, and when it goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.control import launch
from sweep.control.finaliser import _finalise, _has_tried, was_fruitless
from sweep.core.errors import CouldNotAsk
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import ENDED, Beside, TaskState, Wave
from sweep.core.study import Environment
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training import build, images
from tests.storage.ledgers import do, make
from tests.storage.test_ledger import PLACE, STUDY

LAUNCHED = 100.0
ENDED_TASK = TaskState(ENDED, started=True)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    db = Database(database_url)
    yield make(db, STUDY)
    db.close()


def write(ledger: Ledger, token: str, submitted: float, attempts: int = 0) -> None:
    wave = Wave(token, 2, 2, "slurm", submitted, attempts=attempts, job=token)
    do(ledger, lambda: studies.write_wave(ledger.db, ledger.study_id, wave))


def judge(ledger: Ledger, token: str, task: TaskState | None = ENDED_TASK) -> bool:
    """Ask with a scheduler that says this of the wave's one task; None: it does not answer."""

    def poll(jobs: list[str]) -> dict[tuple[str, int], TaskState]:
        if task is None:
            raise CouldNotAsk("slurmctld is away")
        return {(job, 0): task for job in jobs}

    schedule: Any = SimpleNamespace(poll=poll)
    return was_fruitless(ledger, schedule, token, LAUNCHED)


def test_tasks_that_ended_without_an_attempt(ledger: Ledger) -> None:
    write(ledger, "a", 101.0)
    assert judge(ledger, "a")
    assert judge(ledger, "a", None)
    assert not judge(ledger, "a", TaskState(ENDED, started=False))  # a controller lost the array
    assert not judge(ledger, "unknown")


def test_one_attempt_is_enough(ledger: Ledger) -> None:
    write(ledger, "a", 101.0)
    do(ledger, lambda: ledger.claim("t", PLACE))
    assert not judge(ledger, "a")


def test_a_second_wave_that_did_no_better(ledger: Ledger) -> None:
    """Also where nothing is known of its tasks."""
    write(ledger, "a", 101.0)
    write(ledger, "b", 102.0)
    assert judge(ledger, "b", TaskState(ENDED, started=False))


def test_an_image_that_its_job_did_not_build(ledger: Ledger, tmp_path: Path) -> None:
    """Slurm has cancelled what waited for it: the study is held, with what the job said. One that
    went while trials ran is built again."""
    given = Environment("apptainer", "a.def", built=str(tmp_path / "a-1.sif"))
    study = dataclasses.replace(STUDY, environment=given)
    ledger = Ledger(ledger.db, ledger.study_id, study)
    folder = StudyFolder(tmp_path)
    folder.logs.mkdir()
    folder.study.write_text(study.to_json())
    (folder.logs / "build_7.log").write_text("a line\nsweep: a.def could not be built.\n | why\n")
    write(ledger, "a", 101.0)
    schedule: Any = SimpleNamespace(runs=lambda _: True)
    for _ in range(2):
        reason = _finalise(ledger, folder, schedule, "a")
        assert reason == (
            f"environment.image: a.def was not built to {tmp_path}/a-1.sif: a.def could not be "
            f"built; see {folder.logs}/build_*.log and {tmp_path}/a-1.sif.log"
        )
        state = do(ledger, lambda: studies.read_state(ledger.db, ledger.study_id))
        assert (state.word, state.reason) == (studies.HELD, reason)
        do(ledger, lambda: studies.write_state(ledger.db, ledger.study_id, studies.StudyState()))
    do(ledger, lambda: ledger.claim("t", PLACE))
    assert not _has_tried(ledger, "b") and _has_tried(ledger, "a")


def test_a_launch_over_tasks_that_live_builds_for_them(ledger: Ledger, tmp_path: Path) -> None:
    """They wait for no job. Not where none lives, and not beside the job that builds already."""
    (tmp_path / "apptainer").write_text(
        '#!/bin/sh\nfor word; do case $word in *.tmp) : > "$word";; esac; done\n'
    )
    (tmp_path / "apptainer").chmod(0o755)
    (tmp_path / "a.def").write_text("Bootstrap: docker\n")
    runs = Runs(tmp_path / "runs")
    given = Environment("apptainer", "a.def", build="here")
    named = dataclasses.replace(STUDY, environment=given, workdir=str(tmp_path))
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    target = str(images.plan(named, runs, environ).target)
    study = dataclasses.replace(named, environment=dataclasses.replace(given, built=target))
    beside = Beside(builds="job 6 waits")
    schedule: Any = SimpleNamespace(finalises_by_job=True, beside=lambda _: beside)
    folder = runs.study("s")
    prepared = launch.Prepared(study, runs, folder, schedule, environ, lambda _: None)
    rows = launch.Rows(ledger, False, 0, [])
    launch.build_for_tasks(prepared, rows)
    write(ledger, "a", 101.0)
    launch.build_for_tasks(prepared, rows)
    assert build.is_missing(study)
    beside = Beside()
    launch.build_for_tasks(prepared, rows)
    assert not build.is_missing(study)


def test_a_wave_that_was_stopped_says_nothing(ledger: Ledger) -> None:
    """Its tasks left because they were told to, and the study was launched again since."""
    write(ledger, "before", 99.0)
    assert not judge(ledger, "before")
    write(ledger, "a", 101.0)
    assert not judge(ledger, "a", TaskState(ENDED, started=False))  # it is the first one
    assert judge(ledger, "a")
