"""A task's hold on the process that prepares proposals: when it is started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.core.paths import StudyFolder
from sweep.storage import proposals
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.tasks import proposing
from sweep.tasks.proposing import Proposer
from tests.search.test_propose import NUMBERS, make
from tests.storage import ledgers
from tests.waiting import wait_for

SLEEPS, FAILS = "import time; time.sleep(600)\n", "raise SystemExit(1)\n"


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    db = Database(database_url)
    yield ledgers.make(db, make("gp", NUMBERS, trials=12, max_parallel=4))
    db.close()


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def start(
    ledger: Ledger, now: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Proposer]]:
    """Starts one whose process runs this program; its clock is ``now``."""
    made: list[Proposer] = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(proposing, "MODULE", "stub")

    def begin(program: str) -> Proposer:
        (tmp_path / "stub.py").write_text(program)
        made.append(Proposer(ledger, StudyFolder(tmp_path / "study"), lambda: now[0]))
        made[-1].tend()
        return made[-1]

    yield begin
    for one in made:
        one.close()


def child(one: Proposer) -> Any:
    return one._child


def end(one: Proposer) -> None:
    """Wait until its process has ended; it is not waited for yet."""
    os.waitid(os.P_PID, child(one).pid, os.WEXITED | os.WNOWAIT)


def test_one_that_was_killed_is_started_again_at_once(start: Callable[[str], Proposer]) -> None:
    """Three times; then its task has none any more."""
    one = start(SLEEPS)
    for _ in range(proposing.MOST_FAILURES - 1):
        first = child(one)
        one.mend()
        assert child(one) is first  # it lives
        first.send_signal(signal.SIGKILL)
        end(one)
        one.mend()
        assert child(one) is not first and one.is_wanted and not one.has_failed
    child(one).send_signal(signal.SIGKILL)
    end(one)
    one.mend()
    assert child(one) is None and not one.is_wanted


def test_one_that_failed_is_not(start: Callable[[str], Proposer], now: list[float]) -> None:
    """It would fail again: only after a while."""
    one = start(FAILS)
    end(one)
    one.mend()
    one.tend()
    assert child(one) is None and one.has_failed and one.is_wanted
    now[0] += proposing.AGAIN_S
    one.tend()
    assert child(one) is not None and not one.has_failed


def test_another_task_has_one_that_stands_by(
    start: Callable[[str], Proposer], now: list[float], ledger: Ledger
) -> None:
    """What the process itself leases first is its own; the second is started once that is."""
    one, other = start(SLEEPS), start(SLEEPS)
    assert child(one) is not None and child(other) is None
    token = one._token
    assert proposals.lease(ledger.db, ledger.study_id, token)  # as its process does
    proposals.end_lease(ledger.db, ledger.study_id, token, stands_by=True)
    now[0] += proposing.ASK_EVERY_S
    other.tend()
    assert child(other) is not None
    one.close()
    wait_for(lambda: proposals.lease(ledger.db, ledger.study_id, "c"), "its lease to be free")
