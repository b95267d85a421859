"""One trial is cancelled: at once where nobody runs it, else as soon as its attempt ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.control.dead_attempt import attribute
from sweep.control.settle import settle
from sweep.core import outcomes
from sweep.core.paths import StudyFolder
from sweep.core.trial import End, Place, Report
from sweep.storage import cancelling, records
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.storage.ledgers import counts, do, make
from tests.study_rows import make_study

HERE = Place(job="7", index=0, host="n1", slot=None, boot_id=None)


@pytest.fixture
def ledger(database_url: str) -> Ledger:
    return make(Database(database_url), make_study(trials=3))


def cancel(ledger: Ledger, number: int, *, now: bool = False) -> str:
    found = ledger.find_trial(number)
    assert found is not None
    return do(ledger, lambda: cancelling.cancel(ledger, found[0], now=now))  # type: ignore[no-any-return]


def state(ledger: Ledger, number: int = 0) -> tuple[str, str]:
    found = records.read_trials(ledger.db, ledger.study_id, ledger.study, numbers=[number])[0]
    return found.state, found.reason


def test_one_that_waits_is_final_at_once(ledger: Ledger) -> None:
    """And is claimed by nobody; a repeat says that it was final."""
    assert cancel(ledger, 0) == outcomes.CANCELLED
    assert state(ledger) == ("cancelled", cancelling.REASON)
    claim = ledger.claim("a", HERE)
    assert claim is not None and claim.number == 1
    assert cancel(ledger, 0) == ""
    assert counts(ledger) == {"waiting": 1, "running": 1, "cancelled": 1}


@pytest.mark.parametrize("now", [False, True])
def test_one_that_runs_is_told(ledger: Ledger, now: bool) -> None:
    """Its task hears of it with its sign of life, its neighbour's hears nothing."""
    assert ledger.claim("a", HERE) and ledger.claim("b", HERE)
    assert not ledger.touch("a").wants_leaving
    assert cancel(ledger, 0, now=now) == cancelling.ASKED
    wanted = ledger.touch("a")
    assert (wanted.wants_leaving, wanted.cancel, wanted.now) == (True, True, now)
    assert not ledger.touch("b").wants_leaving
    assert state(ledger)[0] == "running"


@pytest.mark.parametrize(
    "outcome",
    [
        outcomes.STOPPED,
        outcomes.INTERRUPTED,
        outcomes.TIMEOUT,
        outcomes.KILLED,
        outcomes.NODE_FAILED,
        outcomes.LOST,
        outcomes.HALTED,
        outcomes.GIVEN_BACK,
        outcomes.OUT_OF_MEMORY,
    ],
)
def test_it_is_cancelled_however_its_attempt_ends(ledger: Ledger, outcome: str) -> None:
    """It must not go on as the next attempt after the user has cancelled it."""
    claim = ledger.claim("a", HERE)
    assert claim is not None
    cancel(ledger, 0)
    after = do(ledger, lambda: settle(ledger, "a", claim.trial_id, End(outcome), None))
    assert (after, state(ledger)[0]) == ("cancelled", "cancelled")
    again = ledger.claim("b", HERE)
    assert again is not None and again.number == 1


def test_it_is_complete_where_it_had_finished(ledger: Ledger) -> None:
    """A result that is there is not thrown away."""
    claim = ledger.claim("a", HERE)
    assert claim is not None
    ledger.record("a", [Report(0, 1.0, {"acc": 0.5})])
    cancel(ledger, 0)
    end = End(outcomes.FINISHED)
    assert do(ledger, lambda: settle(ledger, "a", claim.trial_id, end, None)) == "complete"


def test_a_signal_of_unknown_origin_does_not_save_it(ledger: Ledger, tmp_path: Path) -> None:
    """Its task got a SIGTERM in between: who sent that is found out later."""
    claim = ledger.claim("a", HERE)
    assert claim is not None
    cancel(ledger, 0)
    end = End(outcomes.TERMINATED, "ended by SIGTERM")
    do(ledger, lambda: settle(ledger, "a", claim.trial_id, end, None))
    attempt = ledger.attempts(claim.trial_id)[-1]
    preempted = End(outcomes.INTERRUPTED, "preempted")
    assert attribute(ledger, StudyFolder(tmp_path), attempt, preempted) == "cancelled"
    assert state(ledger) == ("cancelled", cancelling.REASON)


def test_one_between_two_attempts_is_final_at_once(ledger: Ledger) -> None:
    """Nobody runs it: it was interrupted, and waits to go on."""
    claim = ledger.claim("a", HERE)
    assert claim is not None
    do(ledger, lambda: settle(ledger, "a", claim.trial_id, End(outcomes.INTERRUPTED), None))
    assert cancel(ledger, 0) == outcomes.CANCELLED
    assert state(ledger)[0] == "cancelled"


def test_what_a_notebook_runs_is_not_ours(ledger: Ledger) -> None:
    """It has no attempt of ours, and nobody here can end it."""
    ledger.db.execute("UPDATE trials SET state = 'RUNNING' WHERE number = 0")
    assert cancel(ledger, 0) == cancelling.UNTOLD
    assert state(ledger)[0] == "running"
