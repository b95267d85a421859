"""A tracker's database beside the study's: who may make it, and what others are told."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from sweep.core.errors import SweepError
from sweep.storage import tracker_database
from sweep.storage.connection import Database
from sweep.storage.url import dsn
from tests.postgres_fixture import Server
from tests.waiting import PATIENCE_S, wait_for


@pytest.fixture
def role(postgres_server: Server, empty_url: str) -> Iterator[str]:
    """The URL of a role that may make no databases, to a database of its own."""
    name = f"r{secrets.token_hex(6)}"
    postgres_server.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'own'")
    yield f"postgresql://{name}:own@{empty_url.rpartition('@')[2]}"
    database = dsn(empty_url)["dbname"] + tracker_database.SUFFIX
    postgres_server.sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
    postgres_server.sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_role_that_may_not_make_it_is_told_what_to_ask_for(
    role: str, postgres_server: Server
) -> None:
    """Word for word: once the administrator has done it, all is well. A database in which the role
    may make no tables is said as well."""
    with closing(Database(role)) as db:
        with pytest.raises(SweepError, match="may not create one") as raised:
            tracker_database.make(db)
        assert not tracker_database.is_made(db)
        assert "MLFLOW_TRACKING_URI" in raised.value.hint and ":own@" not in str(raised.value)
        asked = raised.value.hint.partition("for: ")[2].partition(";")[0]
        postgres_server.sql(asked.partition(" OWNER ")[0])  # forgetful
        with pytest.raises(SweepError, match="may create no tables") as raised:
            tracker_database.make(db)
        postgres_server.sql(raised.value.hint.partition("for: ")[2].partition(";")[0])
        tracker_database.make(db)
        url = tracker_database.url_beside(db)
    with closing(Database(url)) as beside:
        beside.execute("CREATE TABLE runs (id int)")


def test_its_url_differs_in_the_name_alone(empty_url: str) -> None:
    """The way, the user and the options stay; a name is cut to what PostgreSQL takes."""
    name = dsn(empty_url)["dbname"]
    with closing(Database(f"{empty_url}?connect_timeout=7&keepalives=1")) as db:
        found = dsn(tracker_database.url_beside(db))
    expected = {**dsn(empty_url), "dbname": f"{name}_mlflow"}
    assert found == {**expected, "connect_timeout": "7", "keepalives": "1"}
    names = {tracker_database._name_beside("é" * 28 + end) for end in ("a", "b")}
    assert len(names) == 2
    assert all(len(one.encode()) <= 63 and one.endswith("_mlflow") for one in names)


def test_tables_are_made_by_one_and_used_by_all_at_once(empty_url: str) -> None:
    """Who comes while they are made waits; once they are there, nobody waits for anybody."""
    seen: list[bool] = []

    def use() -> None:
        with tracker_database.with_tables(empty_url), closing(Database(empty_url)) as other:
            sql = "SELECT to_regclass('alembic_version') IS NOT NULL"
            seen.append(bool(other.execute(sql)[0][0]))

    with closing(Database(empty_url)) as db, ThreadPoolExecutor(1) as pool:
        with tracker_database.with_tables(empty_url):
            later = pool.submit(use)
            waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            wait_for(lambda: db.execute(waits)[0][0] > 0, "the other to wait")
            db.execute("CREATE TABLE alembic_version (version_num text)")
        later.result(PATIENCE_S)
        assert seen == [True]
        with tracker_database.with_tables(empty_url):
            use()
    assert seen == [True, True]
