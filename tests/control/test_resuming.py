"""What a failed resume means: steps back, then from nothing, then the user's failure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sweep.control.resuming import choose_checkpoint, is_to_begin_anew, may_step_back, read_past
from sweep.control.settle import settle
from sweep.core.paths import StudyFolder
from sweep.core.trial import Attempt, End, Place, Report
from sweep.storage.ledger import Ledger
from sweep.training.attempt_files import make_folder
from tests.storage.ledgers import do
from tests.study_rows import Row, fill, make_study

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def attempts(history: str) -> list[Attempt]:
    """Return attempts: "resume failed<c1" went on from c1, "killed!" has reported."""
    found = []
    for number, text in enumerate(history.split(", "), 1):
        words, _, resumed = text.partition("<")
        reported = words.endswith("!")
        found.append(
            Attempt(
                *(1, 0, number, f"t{number}", None, None, "node", None, NOON, NOON),
                first_step=0 if reported else None,
                outcome=words.rstrip("!"),
                resumed_from=resumed or None,
            )
        )
    return found


# the attempts, the last one ended by its own error -> is that put down to its checkpoint?
FAILED = [
    ("error", False),
    ("killed!, error", False),
    ("killed!, error<c3", True),
    ("killed!, error!<c3", False),
    ("killed!, resume failed<c3, error<c2", True),
    ("killed!, resume failed<c3, interrupted<c2, error<c2", True),
    ("killed!, resume failed<c3, resume failed<c2, error<c1", True),
    ("killed!, resume failed<c3, resume failed<c2, resume failed<c1, error", False),
    # Begun anew, it was interrupted and could not be resumed again: that goes on for ever.
    ("killed!, resume failed<c3, killed!, error<c4", False),
]


@pytest.mark.parametrize(("history", "expected"), FAILED)
def test_a_failure_of_the_checkpoint(history: str, expected: bool) -> None:
    assert may_step_back(attempts(history)) is expected


# earlier attempts -> does the next one start from nothing?
NEXT = [
    ("killed!", False),
    ("killed!, resume failed<c3", False),
    ("killed!, resume failed<c3, resume failed<c2", False),
    ("killed!, resume failed<c3, resume failed<c2, resume failed<c1", True),
    ("killed!, resume failed<c3, interrupted<c2, resume failed<c2", False),
    ("killed!, resume failed<c3, resume failed<c2, interrupted<c1, resume failed<c1", True),
    ("killed!, resume failed<c3, resume failed<c2, killed!<c1, resume failed<c4", False),
]


@pytest.mark.parametrize(("history", "expected"), NEXT)
def test_from_nothing(history: str, expected: bool) -> None:
    assert is_to_begin_anew(attempts(history)) is expected


@pytest.fixture
def ledger(fresh_url: str) -> Iterator[Ledger]:
    found = fill(fresh_url, make_study(trials=1, max_parallel=1), [Row("WAITING", attempts=())])
    yield found
    found.db.close()


def test_step_by_step(ledger: Ledger, tmp_path: Path) -> None:
    """The next older checkpoint twice, then none, then the trial has failed; a stop is no step."""
    folder = StudyFolder(tmp_path)
    taken = []
    history = ["killed", "error", "interrupted", "error", "error", "error"]
    for number, outcome in enumerate(history, 1):
        token = f"t{number}"
        claim = do(ledger, lambda token=token: ledger.claim(token, Place("job", 0, "node", "b")))
        made = folder.attempt(claim.number, claim.attempt)
        make_folder(made, token)
        past = do(ledger, lambda claim=claim: read_past(ledger, claim.trial_id, claim.attempt))
        found = choose_checkpoint(folder, past)
        taken.append(found.path.name if found else None)
        resumed = (str(found.path), found.digest) if found else None
        do(ledger, lambda token=token, resumed=resumed: ledger.started(token, 1, resumed))
        if number == 1:
            for step in (1, 2, 3, 4):
                (made.checkpoints / f"step_{step}.pt").write_text(str(step))
            do(ledger, lambda token=token: ledger.record(token, [Report(4, 1.0, {"acc": 0.5})]))
        end = End(outcome, "why", 1)
        state = do(
            ledger,
            lambda token=token, end=end, claim=claim: settle(
                ledger, token, claim.trial_id, end, None
            ),
        )
    assert taken == [None, "step_4.pt", "step_3.pt", "step_3.pt", "step_2.pt", None]
    assert state == "failed"
    assert [a.outcome for a in ledger.all_attempts()] == [
        *("killed", "resume failed", "interrupted"),
        *("resume failed", "resume failed", "error"),
    ]
