"""``sweep stop --trial``: cancelling single trials while their study goes on.

No task is cancelled: it may serve other trials beside this one, and pulls another one after it. The
wish lies in the database, where the trial's task finds it; the signal only has it look at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sweep.control import waves
from sweep.control.job_owners import owner_of
from sweep.control.kept_checkpoints import remove_checkpoints
from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.errors import CouldNotAsk, SchedulerError
from sweep.core.scheduler import Scheduler
from sweep.core.times import span
from sweep.core.trial import TrialRecord
from sweep.core.trial_choice import TrialChoice
from sweep.storage import cancelling, records
from sweep.storage.closing import close_untold


def cancel(
    opened: Opened, schedule: Scheduler, choice: TrialChoice, *, now: bool = False
) -> Iterator[tuple[int, str]]:
    """Cancel trials; yield for each its number and what becomes of it, in a sentence.

    Args:
        now: Running ones have no ``grace``.

    Raises:
        InputError: The study has no such trial; nothing was changed.
        BusyError: Tasks of another version serve the study, and would not heed it.
    """
    ledger, db = opened.ledger, opened.ledger.db
    everything = db.retry(lambda _: records.read_trials(db, ledger.study_id, ledger.study))
    by_number = {record.number: record for record in everything}
    numbers = choice.numbers(by_number)
    if any(by_number[number].state == outcomes.RUNNING for number in numbers):
        waves.refuse_other_versions(ledger, schedule)
    asked = False
    for number in numbers:
        record = by_number[number]
        became = db.retry(
            lambda _, record=record: cancelling.cancel(ledger, record.trial_id, now=now)  # type: ignore[misc]
        )
        asked = asked or became == cancelling.ASKED
        if became == outcomes.CANCELLED:
            db.retry(
                lambda _, number=number: remove_checkpoints(ledger, opened.folder, number)  # type: ignore[misc]
            )
        yield number, _sentence(opened, number, became, now)
    if asked:
        _hurry(opened, schedule)
    db.retry(lambda _: close_untold(ledger))


def _sentence(opened: Opened, number: int, became: str, now: bool) -> str:
    if became == outcomes.CANCELLED:
        return "cancelled"
    if became == cancelling.UNTOLD:
        return "runs outside of sweep (a notebook's, say): end it there"
    if became == cancelling.ASKED:
        limit = (
            "is ended within seconds"
            if now
            else (f"is told to leave, and has {span(opened.study.grace_s)} for it")
        )
        return f"{limit}; it is cancelled then"
    record = _read(opened, number)
    why = f" ({record.reason})" if record.reason else ""
    return f"{record.state} already{why}; nothing to cancel"


def _read(opened: Opened, number: int) -> TrialRecord:
    ledger = opened.ledger
    found = ledger.db.retry(
        lambda db: records.read_trials(db, ledger.study_id, ledger.study, numbers=[number])
    )
    return found[0]


def _hurry(opened: Opened, schedule: Scheduler) -> None:
    """Have the tasks look at once what is wanted of them; they look by themselves, later."""
    for wave in waves.open_waves(opened.ledger):
        if wave.job:
            with contextlib.suppress(SchedulerError, CouldNotAsk):
                owner_of(opened.ledger, schedule, wave).hurry(wave.job)
