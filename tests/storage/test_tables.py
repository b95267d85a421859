"""Tables of an earlier version serve, and are brought up to date by the next launch."""

from __future__ import annotations

import pytest

from sweep.core.trial import Place, Reading, Report
from sweep.storage import tables
from sweep.storage.connection import Database
from sweep.storage.reports import UNSHOWN
from tests.postgres_fixture import Server
from tests.storage import ledgers
from tests.study_rows import make_study

BIG = 3_000_000_000  # tokens seen


@pytest.fixture
def older(fresh_url: str) -> str:
    """A database as it was before attempts had readings and Optuna's table wide steps."""
    db = Database(fresh_url)
    with db.transaction():
        db.execute("ALTER TABLE sweep_attempt DROP COLUMN journal, DROP COLUMN notes")
    db.close()
    return fresh_url


def record(url: str) -> tuple[list[tuple[int]], tuple[str, ...]]:
    """Store a big step of a trial; return what Optuna's table has, and the attempt's notes."""
    ledger = ledgers.make(Database(url), make_study(trials=1))
    place = Place("job", 0, "here")
    ledgers.do(ledger, lambda: ledger.claim("token", place))
    reports = [Report(step, 1.0, {ledger.study.objective.metric: 0.5}) for step in (1, BIG)]
    ledger.record("token", reports, Reading("{}", ("odd",)))
    ledger.record("token", [], Reading("{}", ("odd", "and more")))
    (attempt,) = ledger.all_attempts()
    assert ledger.db.execute("SELECT MAX(step) FROM sweep_metric") == [(BIG,)]
    stored = ledger.db.execute("SELECT step FROM trial_intermediate_values ORDER BY step")
    ledger.db.close()
    return stored, attempt.notes


def test_older_tables_serve(older: str) -> None:
    """Nothing is noted in them; what is reported is stored."""
    assert record(older) == ([(1,)], ())


def test_they_are_brought_up_to_date(older: str) -> None:
    """Also Optuna's own table, where the database is ours; else that stays as Optuna made it."""
    for own, stored, said in ((False, [(1,)], (UNSHOWN,)), (True, [(1,), (BIG,)], ())):
        for _ in range(2):
            tables.create(older, own=own)
        db = Database(older)
        assert tables.read_tables(db).keep_readings
        assert record(older) == (stored, ("odd", "and more", *said))
        with db.transaction():
            db.execute("TRUNCATE studies, trials CASCADE")
        db.close()


def test_who_may_not_change_them_goes_on(postgres_server: Server, older: str) -> None:
    """The tables belong to somebody else: a study runs on them as before."""
    database = older.rpartition("/")[2]
    postgres_server.sql("DROP ROLE IF EXISTS reader")
    postgres_server.sql("CREATE ROLE reader LOGIN PASSWORD 'r'")
    every = "ON ALL TABLES IN SCHEMA public"
    postgres_server.sql(f"GRANT ALL {every} TO reader", database)
    postgres_server.sql("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO reader", database)
    theirs = f"postgresql://reader:r@127.0.0.1:{postgres_server.port}/{database}"
    tables.create(theirs, own=True)
    assert record(theirs) == ([(1,)], ())
