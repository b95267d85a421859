"""When a finaliser holds a study whose tasks end without a trial, and when it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.control.finaliser import was_fruitless
from sweep.core.errors import CouldNotAsk
from sweep.core.scheduler import ENDED, TaskState, Wave
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
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


def test_a_wave_that_was_stopped_says_nothing(ledger: Ledger) -> None:
    """Its tasks left because they were told to, and the study was launched again since."""
    write(ledger, "before", 99.0)
    assert not judge(ledger, "before")
    write(ledger, "a", 101.0)
    assert not judge(ledger, "a", TaskState(ENDED, started=False))  # it is the first one
    assert judge(ledger, "a")
