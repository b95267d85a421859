"""Who owns which trial: claims, attempts, what they report and how they end.

The fence: each attempt has a token, and every write of an attempt takes its live row in
``sweep_attempt``; once the row has an outcome, the write is refused with StaleAttempt. Row locks
are taken in one order, the attempt's before the trial's, except by a claim, which locks a trial
that has no live attempt.

Everything may be repeated after a lost connection: a claim is found again by its token, reports are
upserts by (attempt, name, step), and an end that was already written is recognised.
"""

from __future__ import annotations

from sweep.core.outcomes import CLAIMABLE, GIVEN_BACK, HALTED, PAUSED, USER_FAILURES
from sweep.core.trial import Place, Report
from sweep.storage.attempts import VIOLATION_SQL, clean
from sweep.storage.claims import Claims, read_params, stored_value
from sweep.storage.ends import Endings
from sweep.storage.reports import Reports

__all__ = [
    "CLAIMABLE",
    "GIVEN_BACK",
    "HALTED",
    "PAUSED",
    "USER_FAILURES",
    "VIOLATION_SQL",
    "Ledger",
    "Place",
    "Report",
    "clean",
    "read_params",
    "stored_value",
]


class Ledger(Claims, Reports, Endings):
    """The attempts of one study: taking trials, writing while they run, ending them."""
