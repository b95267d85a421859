"""Advisory locks: what one at a time does, over all machines that use a database.

Each is a pair of numbers: what is done, and the study it is done to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from sweep.core.errors import DatabaseUnavailable
from sweep.storage.connection import Database

TABLES = 0x5EEB0001  # making the tables; of no study
LOOK = 0x5EEB0002  # looking after a study
SUBMIT = 0x5EEB0003  # submitting for a study; by its name, which comes before its rows
PROMOTE = 0x5EEB0004  # which paused trial goes on
PROPOSE = 0x5EEB0005  # whether a proposed configuration is taken, and storing it
CLAIM = 0x5EEB0006  # whether there is room for one more attempt, and taking it
TRACKER = 0x5EEB0007  # a tracker making its tables, in a database of its own; of no study

_BEGIN = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; "


def try_tables(holder: Database) -> bool:
    """Try to hold the tables until the connection is closed, which is for this alone."""
    return _try_open(holder, "SELECT pg_try_advisory_xact_lock(%s)", (TABLES,))


def try_submit(holder: Database, name: str) -> bool:
    """Try to be the one that submits for a study, until the connection is closed, which is for
    this alone."""
    sql = "SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))"
    return _try_open(holder, sql, (SUBMIT, name))


def _try_open(holder: Database, sql: str, values: tuple[object, ...]) -> bool:
    """Take a lock in a transaction that stays open, or leave none open.

    A lock of the session would stay behind where a pooler (PgBouncer in transaction mode) hands our
    statements to whichever of its sessions is free.
    """
    if holder.execute(_BEGIN + sql, values)[0][0]:
        return True
    holder.execute("ROLLBACK")
    return False


def hold(db: Database, what: int, study_id: int) -> None:
    """Wait for a lock and hold it to the transaction's end."""
    db.execute("SELECT pg_advisory_xact_lock(%s, %s)", (what, study_id))


def try_hold(db: Database, what: int, study_id: int) -> bool:
    """Hold a lock to the transaction's end unless somebody else has it."""
    return bool(db.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (what, study_id))[0][0])


@contextmanager
def held(db: Database, what: int, study_id: int, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock while the block uses the database: by a connection beside it.

    Args:
        shared: Others who share it may hold it, too.
    """
    take = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    with closing(Database(db.url, timeout_s=db.timeout_s)) as holder:
        holder.execute(f"{_BEGIN}SELECT {take}(%s, %s)", (what, study_id))
        try:
            yield
        finally:
            # The server ends the session of a closed connection only a little later.
            with suppress(DatabaseUnavailable):
                holder.execute("ROLLBACK")
