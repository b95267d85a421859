"""A process that claims trials and finishes them until none is left.

``python -m tests.chaos.claimer URL STUDY_ID INDEX``; it prints a line for each trial it finished.
"""

from __future__ import annotations

import os
import secrets
import sys
import time

from sweep.core.errors import NoRoom
from sweep.core.trial import End, Place, Report
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger

PATIENCE_S = 60.0


def main(url: str, study_id: int, index: int) -> None:
    db = Database(url)
    study = db.retry(lambda _: studies.read_specification(db, study_id), patience_s=PATIENCE_S)
    assert study is not None
    ledger = Ledger(db, study_id, study)
    place = Place("claimers", index, "node", slot=os.getpid())
    while True:
        token = secrets.token_hex(16)
        try:
            claim = db.retry(lambda _, t=token: ledger.claim(t, place), patience_s=PATIENCE_S)
        except NoRoom:  # one that was killed is not settled yet
            time.sleep(0.05)
            continue
        if claim is None:
            return

        def end(_: object, token: str = token) -> None:
            ledger.record(token, [Report(0, 0.0, {"loss": float(os.getpid())})])
            ledger.finish(token, End("finished"), "complete", [float(os.getpid())])

        db.retry(end, patience_s=PATIENCE_S)
        print(claim.number, claim.attempt, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
