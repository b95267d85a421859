"""A worker that is made to sleep in the middle of its writes: ``sleeper URL STUDY_ID``.

It claims a trial and reports steps without end; once a write is refused as stale it tries to finish
the trial all the same, says how often it was refused, and claims the next. It ends when none is
left.
"""

from __future__ import annotations

import os
import secrets
import sys
import time

from sweep.core.errors import StaleAttempt
from sweep.core.trial import End, Place, Report
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger

PATIENCE_S = 120.0
STALE_VALUE = -1.0  # what only it writes


def main(url: str, study_id: int) -> None:
    # What the server waits for a session that hangs in a transaction: then others go on.
    db = Database(url, timeout_s=2.0)
    study = db.retry(lambda _: studies.read_specification(db, study_id), patience_s=PATIENCE_S)
    assert study is not None
    ledger = Ledger(db, study_id, study)
    while True:
        token = secrets.token_hex(16)
        place = Place("sleeper", 0, "node", slot=os.getpid())
        claim = db.retry(lambda _, t=token, p=place: ledger.claim(t, p), patience_s=PATIENCE_S)
        if claim is None:
            return
        print(f"claimed {claim.number}", flush=True)
        step, refused = 0, 0
        while not refused:
            report = Report(step, time.time(), {"loss": STALE_VALUE})
            try:
                db.retry(lambda _, t=token, r=report: ledger.record(t, [r]), patience_s=PATIENCE_S)
            except StaleAttempt:
                refused += 1
            step += 1
        try:
            end = End("finished")
            db.retry(
                lambda _, t=token, e=end: ledger.finish(t, e, "complete", [STALE_VALUE]),
                patience_s=PATIENCE_S,
            )
        except StaleAttempt:
            refused += 1
        print(f"refused {refused} {step}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
