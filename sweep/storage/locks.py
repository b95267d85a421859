"""Advisory locks: what one at a time does, over all machines that use a database.

Each is a pair of numbers: what is done, and the study it is done to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sweep.storage.connection import Database

TABLES = 0x5EEB0001  # making the tables; of no study
LOOK = 0x5EEB0002  # looking after a study
SUBMIT = 0x5EEB0003  # submitting for a study; by its name, which comes before its rows
PROMOTE = 0x5EEB0004  # which paused trial goes on
PROPOSE = 0x5EEB0005  # whether a proposed configuration is taken, and storing it


def try_tables(db: Database) -> bool:
    """Try to hold the tables until the connection is closed."""
    return bool(db.execute("SELECT pg_try_advisory_lock(%s)", (TABLES,))[0][0])


def try_submit(db: Database, name: str) -> bool:
    """Try to be the one that submits for a study, until the connection is closed."""
    sql = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
    return bool(db.execute(sql, (SUBMIT, name))[0][0])


def hold(db: Database, what: int, study_id: int) -> None:
    """Wait for a lock and hold it to the transaction's end."""
    db.execute("SELECT pg_advisory_xact_lock(%s, %s)", (what, study_id))


def try_hold(db: Database, what: int, study_id: int) -> bool:
    """Hold a lock to the transaction's end unless somebody else has it."""
    return bool(db.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (what, study_id))[0][0])


@contextmanager
def held(db: Database, what: int, study_id: int) -> Iterator[None]:
    """Hold a lock over several transactions of one connection."""
    db.execute("SELECT pg_advisory_lock(%s, %s)", (what, study_id))
    try:
        yield
    finally:
        db.execute("SELECT pg_advisory_unlock(%s, %s)", (what, study_id))
