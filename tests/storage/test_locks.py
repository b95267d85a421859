"""Advisory locks: two connections, of which one at a time has a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sweep.storage import locks
from sweep.storage.connection import Database
from tests.waiting import wait_for


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with closing(Database(database_url)) as database:
        yield database


@pytest.fixture
def other(database_url: str) -> Iterator[Database]:
    with closing(Database(database_url)) as database:
        yield database


@pytest.mark.parametrize("what", ["tables", "digits"])
def test_the_tables_and_a_name_are_held_by_one_connection(
    db: Database, other: Database, what: str
) -> None:
    """Until it is closed; another name is free."""

    def take(holder: Database) -> bool:
        return locks.try_tables(holder) if what == "tables" else locks.try_submit(holder, what)

    assert take(db)
    assert not take(other)
    assert locks.try_submit(other, "letters")
    other.close()
    db.close()
    # The server ends a session, and gives its locks back, a little after it was left.
    wait_for(lambda: take(other), "the lock")


def test_a_lock_of_a_study_is_held_to_the_transactions_end(db: Database, other: Database) -> None:
    """Each study has its own, and each thing to do."""
    with db.transaction():
        locks.hold(db, locks.LOOK, 1)
        with other.transaction():
            assert not locks.try_hold(other, locks.LOOK, 1)
            assert locks.try_hold(other, locks.LOOK, 2)
            assert locks.try_hold(other, locks.PROMOTE, 1)
    with other.transaction():
        assert locks.try_hold(other, locks.LOOK, 1)


def test_a_lock_over_several_transactions_is_given_back(db: Database, other: Database) -> None:
    """Also where the block fails."""
    with pytest.raises(ValueError), locks.held(db, locks.PROPOSE, 1):
        with other.transaction():
            assert not locks.try_hold(other, locks.PROPOSE, 1)
        raise ValueError
    with other.transaction():
        assert locks.try_hold(other, locks.PROPOSE, 1)
