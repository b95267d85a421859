"""Cancelling single trials: at once where nobody runs them, else their task is asked to.

The wish lies on the trial; its attempt's task reads it with its sign of life. Whoever ends the
attempt otherwise (it was preempted, say) holds the study's row as the wish does, and sees it.
"""

from __future__ import annotations

from sweep.core import outcomes
from sweep.core.attributes import LEAVE
from sweep.core.trial import End
from sweep.storage import studies, trial_rows
from sweep.storage.closing import close_trials
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger

REASON = "cancelled by `sweep stop --trial`"
# What became of a wish, beside the states of a trial that is final.
ASKED = "asked"
UNTOLD = "untold"  # it runs outside of sweep


def cancel(ledger: Ledger, trial_id: int, *, now: bool = False) -> str:
    """Cancel a trial; inside ``db.retry``, and safe to repeat.

    Args:
        now: Without ``grace``.

    Returns:
        ``outcomes.CANCELLED`` where it is final by this; ASKED where its task is to end it; UNTOLD
        where it is not ours to end; "" where it was final already.
    """
    db = ledger.db
    studies.lock_study(db, ledger.study_id)
    state = db.execute(
        "SELECT state::text FROM trials WHERE trial_id = %s FOR UPDATE", (trial_id,)
    )[0][0]
    if state not in ("WAITING", "RUNNING"):
        return ""
    attempts = ledger.attempts(trial_id)  # after the lock: a claim may have come in between
    if attempts and attempts[-1].outcome is None:
        trial_rows.write_attribute(db, "system", [trial_id], LEAVE, {"now": now})
        return ASKED
    if state == "RUNNING" and not attempts:
        return UNTOLD
    close_trials(db, [trial_id], outcomes.CANCELLED, End(outcomes.STOPPED, REASON))
    return outcomes.CANCELLED


def is_wanted(db: Database, trial_id: int) -> bool:
    """Tell whether somebody wants a trial cancelled."""
    return trial_rows.read_attribute(db, "system", trial_id, LEAVE) is not None
