"""Who owns which trial: claims, attempts, what they report and how they end.

The fence: each attempt has a token, and every write of an attempt takes its live row in
``sweep_attempt``; once the row has an outcome, the write is refused with StaleAttempt. Row locks
are taken in one order, the attempt's before the trial's, except by a claim, which locks a trial
that has no live attempt.

Everything may be repeated after a lost connection: a claim is found again by its token, reports are
upserts by (attempt, name, step), and an end that was already written is recognised.
"""

from __future__ import annotations

from sweep.storage.claims import Claims
from sweep.storage.ends import Endings
from sweep.storage.reports import Reports


class Ledger(Claims, Reports, Endings):
    """The attempts of one study: taking trials, writing while they run, ending them."""
