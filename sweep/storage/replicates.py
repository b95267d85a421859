"""What each training of a trial with several (``replicates``) has given, as a note on the trial.

While replicates are missing the trial is open, as between two attempts: any task takes it up. What
the replicates before reported is in their attempts' journals; the tables hold the curves of the one
that came last, and for pruners those of the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sweep.core.attributes import REPLICATES
from sweep.core.trial import Replicate
from sweep.storage.attempts import VIOLATION_SQL
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.trial_rows import write_attribute


def parse(text: str) -> tuple[Replicate, ...]:
    """Return what a trial's note says, as text."""
    return of_note(json.loads(text))


def of_note(found: object) -> tuple[Replicate, ...]:
    """Return what a trial's note says; a notebook may have put anything under our key."""
    if not isinstance(found, list):
        return ()
    try:
        return tuple(_one(each) for each in found if isinstance(each, Mapping) and "values" in each)
    except (TypeError, ValueError):
        return ()


def _one(found: Mapping[str, object]) -> Replicate:
    def floats(key: str) -> tuple[float, ...]:
        values = found.get(key)
        return tuple(float(value) for value in values) if isinstance(values, list) else ()

    number, seed, attempt = (int(str(found.get(k, 0))) for k in ("number", "seed", "attempt"))
    kept = found.get("kept")
    pairs = [(int(n), float(when)) for n, when in kept] if isinstance(kept, list) else []
    return Replicate(number, seed, attempt, floats("values"), floats("bounded"), tuple(pairs))


def read(db: Database, trial_id: int) -> tuple[Replicate, ...]:
    """Return the replicates of a trial that have ended well, in order."""
    rows = db.execute(
        "SELECT value_json FROM trial_user_attributes WHERE trial_id = %s AND key = %s",
        (trial_id, REPLICATES),
    )
    return parse(rows[0][0]) if rows else ()


def write(db: Database, trial_id: int, replicates: Sequence[Replicate]) -> None:
    """Note the replicates of a trial; inside ``db.retry``, with the end of the last one."""
    write_attribute(db, "user", [trial_id], REPLICATES, [asdict(one) for one in replicates])


def begin_next(db: Database, trial_id: int) -> None:
    """Take away the curves of a replicate that has ended: the next one's follow in their place."""
    db.execute("DELETE FROM sweep_metric WHERE trial_id = %s", (trial_id,))


def of_others(ledger: Ledger, trial_id: int) -> list[tuple[Replicate, ...]]:
    """Return the replicates of each complete trial but one, where it keeps to the constraints."""
    rows = ledger.db.execute(
        "SELECT u.value_json FROM trials t JOIN trial_user_attributes u USING (trial_id) "
        f"WHERE t.study_id = %s AND t.state = 'COMPLETE' AND t.trial_id <> %s AND u.key = %s "
        f"AND {VIOLATION_SQL} = 0",
        (ledger.study_id, trial_id, REPLICATES),
    )
    return [found for (text,) in rows if (found := parse(text))]
