"""The database connection against a real server that is stopped, frozen, full and restarted."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg2
import pytest

from sweep.core.errors import BusyError, DatabaseUnavailable, InputError, SweepError
from sweep.storage import connection, locks, tables
from sweep.storage.connection import Database
from tests.postgres_fixture import PASSWORD, Server, running_server
from tests.waiting import PATIENCE_S, returns, wait_for

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(max_connections=12) as server:
        yield server


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    database = Database(server.url(), timeout_s=PATIENCE_S)
    yield database
    database.close()


@pytest.fixture
def impatient(server: Server) -> Iterator[Database]:
    """One that takes no answer for two seconds as none at all."""
    database = Database(server.url(), timeout_s=2.0)
    yield database
    database.close()


def backend(database: Database) -> int:
    return int(database.execute("SELECT pg_backend_pid()")[0][0])


def test_rows_parameters_and_session(database: Database) -> None:
    """Values travel both ways, and the session is in UTC and UTF-8."""
    row = database.execute("SELECT %s, %s, 0.1::float8, %s, 'é%%'", (1, [1, 2], "it's"))
    assert row == [(1, [1, 2], 0.1, "it's", "é%")]
    assert database.execute("SELECT 'é%'") == [("é%",)]
    assert database.execute("SHOW timezone") == [("UTC",)]
    assert database.execute("SHOW client_encoding") == [("UTF8",)]
    assert database.execute("SHOW application_name") == [("sweep",)]
    assert database.execute("SET work_mem = '5MB'") == []
    database.execute("SELECT generate_series(1, 3)")
    assert database.rowcount == 3


def test_transaction_commits_and_rolls_back(database: Database) -> None:
    """A transaction is whole or absent, and the connection serves on after an error."""
    database.execute("CREATE TEMP TABLE t (i integer PRIMARY KEY)")
    with database.transaction():
        database.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(psycopg2.errors.UniqueViolation), database.transaction():
        database.execute("INSERT INTO t VALUES (2)")
        database.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(ZeroDivisionError), database.transaction():
        database.execute("INSERT INTO t VALUES (3)")
        raise ZeroDivisionError
    assert database.execute("SELECT i FROM t") == [(1,)]


def test_swallowed_error_does_not_pass_for_a_commit(database: Database) -> None:
    """COMMIT of a failed transaction is an error, though PostgreSQL only says ROLLBACK."""
    with (
        pytest.raises(RuntimeError, match="nothing was written"),
        database.transaction(),
        suppress(psycopg2.errors.DivisionByZero),
    ):
        database.execute("SELECT 1 / 0")
    assert database.execute("SELECT 1") == [(1,)]


def test_nested_transaction_is_refused(database: Database) -> None:
    """Nesting is a mistake of the caller, and the outer one is rolled back."""
    with (
        pytest.raises(RuntimeError, match="open already"),
        database.transaction(),
        database.transaction(),
    ):
        pass
    assert database.execute("SELECT 1") == [(1,)]


def test_wrong_parameters_leave_the_connection_alone(database: Database) -> None:
    """What psycopg2 refuses before sending costs no reconnection."""
    before = backend(database)
    with pytest.raises(ValueError):
        database.execute("SELECT %s", ("a\0b",))
    with pytest.raises(psycopg2.errors.UndefinedTable):
        database.execute("SELECT * FROM nowhere")
    assert backend(database) == before


def test_terminated_backend(server: Server, database: Database) -> None:
    """A lost connection is reported once, and the next call opens a new one."""
    server.sql(f"SELECT pg_terminate_backend({backend(database)})")
    with pytest.raises(DatabaseUnavailable):
        database.execute("SELECT 1")
    assert database.execute("SELECT 1") == [(1,)]


def test_retry_hides_a_terminated_backend(server: Server, database: Database) -> None:
    """``retry`` runs the work again, and tells of the wait."""
    server.sql(f"SELECT pg_terminate_backend({backend(database)})")
    waits: list[str] = []
    rows = database.retry(
        lambda db: db.execute("SELECT 1"),
        patience_s=20,
        on_wait=lambda waited_s, error: waits.append(str(error)),
    )
    assert rows == [(1,)]
    assert len(waits) == 1 and "does not answer" in waits[0]


def test_loss_within_a_transaction(server: Server, database: Database) -> None:
    """After a loss the rest of a transaction does not run on a new connection."""
    database.execute("CREATE TABLE IF NOT EXISTS lost (i integer)")
    with pytest.raises(DatabaseUnavailable), database.transaction():
        database.execute("INSERT INTO lost VALUES (1)")
        server.sql(f"SELECT pg_terminate_backend({backend(database)})")
        with pytest.raises(DatabaseUnavailable):
            database.execute("INSERT INTO lost VALUES (2)")
        database.execute("INSERT INTO lost VALUES (3)")
    assert database.execute("SELECT * FROM lost") == []


def test_retry_within_a_lost_transaction(server: Server, database: Database) -> None:
    """Inside an open transaction nothing is tried again: what came before is lost."""
    with pytest.raises(DatabaseUnavailable), database.transaction():
        server.sql(f"SELECT pg_terminate_backend({backend(database)})")
        waits: list[float] = []
        database.retry(
            lambda db: db.execute("SELECT 1"),
            patience_s=30,
            transaction=False,
            on_wait=lambda waited_s, _: waits.append(waited_s),
        )
    assert waits == []
    assert database.execute("SELECT 1") == [(1,)]


def test_restart_in_mid_use(server: Server, database: Database) -> None:
    """A server that is away is refused quickly, and waited for by ``retry``."""
    database.execute("SELECT 1")
    server.stop()
    restarter = threading.Timer(0.5, server.start)
    restarter.start()
    try:
        assert database.retry(lambda db: db.execute("SELECT 2"), patience_s=60) == [(2,)]
    finally:
        restarter.join()


def test_patience_ends(server: Server, database: Database) -> None:
    """When patience is over the last error is raised, with place and advice, without password."""
    server.stop()
    waits: list[float] = []
    try:
        start = time.monotonic()
        with pytest.raises(DatabaseUnavailable) as caught:
            database.retry(
                lambda db: db.execute("SELECT 1"),
                patience_s=0.3,
                on_wait=lambda waited_s, _: waits.append(waited_s),
            )
        assert time.monotonic() - start >= 0.3
        assert all(waited_s < 0.3 for waited_s in waits)
    finally:
        server.start()
    assert f'"postgres" at 127.0.0.1:{server.port}' in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_frozen_server_is_bounded(server: Server, impatient: Database) -> None:
    """A hung server costs no more than the time limit: for a statement and for a connection."""
    impatient.retry(lambda db: db.execute("SELECT 1"), patience_s=PATIENCE_S)
    with server.frozen():
        for words in ("no answer within 2 s", "no connection within 2 s"):
            with pytest.raises(DatabaseUnavailable) as caught:
                returns(lambda: impatient.execute("SELECT 1"))
            assert words in str(caught.value)
    found = impatient.retry(lambda db: db.execute("SELECT 1"), patience_s=PATIENCE_S)
    assert found == [(1,)]


def test_slow_statement_is_ended_by_the_server(server: Server) -> None:
    """The server gives up first, so that the session stays usable."""
    with contextlib.closing(Database(server.url(), timeout_s=10.0)) as database:
        before = backend(database)
        database.execute("SET statement_timeout = 500")  # earlier yet: a busy machine is late
        with pytest.raises(DatabaseUnavailable, match="statement timeout"):
            database.execute("SELECT pg_sleep(30)")
        assert backend(database) == before


def test_a_session_is_told_to_end_a_slow_statement_before_we_do(impatient: Database) -> None:
    found = impatient.retry(lambda db: db.execute("SHOW statement_timeout"), patience_s=PATIENCE_S)
    assert found == [("1800ms",)]


def test_full_server(server: Server, database: Database) -> None:
    """Too many connections is a passing state."""
    taken: list[Any] = []
    counted = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"

    def is_full() -> bool:
        """Take one more place; all are ours once no session of before is still ending."""
        try:
            taken.append(server.connect("postgres"))
        except psycopg2.OperationalError:
            cursor = taken[0].cursor()
            cursor.execute(counted)
            return bool(cursor.fetchone()[0] == len(taken))
        return False

    try:
        wait_for(is_full, "all places to be taken", pause_s=0.001)
        with pytest.raises(DatabaseUnavailable, match=r"(too many clients|connection slots)"):
            database.execute("SELECT 1")
    finally:
        for connection in taken:
            connection.close()
    assert database.retry(lambda db: db.execute("SELECT 1"), patience_s=20) == [(1,)]


def test_more_workers_than_connections(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full server all come to their turn, and none fails."""
    monkeypatch.setattr(connection, "TURN_S", 0.3)
    monkeypatch.setattr(connection, "FULL_PAUSE_S", 0.1)
    done = [0] * 18  # the server takes 12, the test's own included
    failures: list[BaseException] = []

    def work(place: int) -> None:
        database = Database(server.url(), timeout_s=10.0)
        try:
            while not all(done):  # each works on until everyone had a turn
                database.retry(lambda db: db.execute("SELECT pg_sleep(0.01)"), patience_s=60.0)
                done[place] += 1
        except BaseException as error:
            failures.append(error)
        finally:
            database.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(done))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failures == []
    assert min(done) > 0


def test_a_session_at_rest_stays(database: Database) -> None:
    """Where there are places enough: to connect anew every few seconds costs the server more."""
    before = backend(database)
    database.rest()
    assert backend(database) == before
    for _ in range(3):
        database.retry(lambda db: db.execute("SELECT 1"))
        database.rest()
    assert backend(database) == before


CROWD = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'crowd'"


@pytest.mark.parametrize(
    "limited", ["ROLE crowd CONNECTION LIMIT 4", "DATABASE {name} CONNECTION LIMIT 4"]
)
def test_a_session_at_rest_is_closed_where_places_are_few(fresh_url: str, limited: str) -> None:
    """What has been idle gives its place away; what is in use keeps it."""
    name = fresh_url.rpartition("/")[2]
    elsewhere = fresh_url.removesuffix(name) + "postgres"
    with contextlib.closing(Database(elsewhere)) as owner:
        owner.execute("CREATE ROLE crowd LOGIN PASSWORD 'crowd'")
        try:
            owner.execute(f"ALTER {limited.format(name=name)}")
            url = re.sub("//[^@]*@", "//crowd:crowd@", fresh_url)
            others = [Database(url) for _ in range(2)]
            crowded = Database(url)
            for one in (*others[:1], crowded):
                one.connect()
            before = backend(crowded)
            crowded.rest()
            assert backend(crowded) == before, "two of four are taken"
            others[1].connect()
            crowded.close()
            wait_for(lambda: owner.execute(CROWD) == [(2,)], "the closed session to end")
            before = backend(crowded)
            crowded.rest(60.0)
            assert backend(crowded) == before
            with crowded.transaction():
                crowded.rest()
                assert backend(crowded) == before
            crowded.rest()
            wait_for(lambda: owner.execute(CROWD) == [(2,)], "the session at rest to end")
            assert backend(crowded) != before, "three of four are taken"
        finally:
            for one in (*others, crowded):
                one.close()
            owner.execute(f"ALTER {limited.format(name=name).replace('LIMIT 4', 'LIMIT -1')}")
            owner.execute("DROP ROLE crowd")


def test_prepared_statements(database: Database) -> None:
    """A statement is planned once a session, and again in the next session."""
    sql = "SELECT %(a)s::int + %(b)s::int + %(a)s::int, '100%%'"
    for number in range(3):
        assert database.execute_prepared(sql, {"a": number, "b": 1}) == [(2 * number + 1, "100%")]
    known = "SELECT count(*) FROM pg_prepared_statements"
    assert database.execute(known) == [(1,)]
    with pytest.raises(psycopg2.errors.InvalidTextRepresentation):
        database.execute_prepared("SELECT %(x)s::int", {"x": "word"})
    assert database.execute_prepared("SELECT %(x)s::int", {"x": 7}) == [(7,)]
    database.close()
    assert database.execute_prepared(sql, {"a": 1, "b": 1}) == [(3, "100%")]
    assert database.execute(known) == [(1,)]


def test_statements_that_a_pooler_loses(database: Database) -> None:
    """Where prepared statements vanish from under the session, plain ones take their place."""
    sql = "SELECT %(a)s::int"
    assert database.execute_prepared(sql, {"a": 1}) == [(1,)]
    database.execute("DEALLOCATE ALL")
    found = database.retry(lambda db: db.execute_prepared(sql, {"a": 2}), patience_s=20.0)
    assert found == [(2,)]
    assert database.execute("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


def test_deadlock_is_tried_again(server: Server, database: Database) -> None:
    """Of two transactions that lock crosswise both take place in the end."""
    database.execute("CREATE TABLE IF NOT EXISTS cross_lock (i integer, n integer)")
    database.execute("INSERT INTO cross_lock VALUES (1, 0), (2, 0)")
    other = Database(server.url())
    meeting = threading.Barrier(2, timeout=PATIENCE_S)

    def work(first: int, second: int) -> None:
        tries = []

        def lock(db: Database) -> None:
            tries.append(1)
            db.execute("UPDATE cross_lock SET n = n + 1 WHERE i = %s", (first,))
            if len(tries) == 1:
                meeting.wait()
            db.execute("UPDATE cross_lock SET n = n + 1 WHERE i = %s", (second,))

        (database if first == 1 else other).retry(lock, patience_s=60)

    threads = [threading.Thread(target=work, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    other.close()
    assert database.execute("SELECT n FROM cross_lock ORDER BY i") == [(2,), (2,)]


def test_interrupt_closes_the_connection(server: Server) -> None:
    """Ctrl-C in a statement leaves no half-read answer behind."""
    database, other = Database(server.url(), timeout_s=PATIENCE_S), Database(server.url())
    before = backend(database)
    asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"

    def kill_once_asleep() -> None:
        wait_for(lambda: other.execute(asleep, (before,)), "the statement to run", pause_s=0.01)
        os.kill(os.getpid(), signal.SIGUSR1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGUSR1, interrupt)
    try:
        thread = threading.Thread(target=kill_once_asleep)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            database.execute("SELECT pg_sleep(60), 'late'")
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert database.execute("SELECT 'next'") == [("next",)]
    assert backend(database) != before
    other.execute("SELECT pg_terminate_backend(%s)", (before,))
    other.close()
    database.close()


def test_fork_does_not_share_the_connection(database: Database) -> None:
    """A child opens a connection of its own, and the parent's stays sound."""
    before = backend(database)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, str(backend(database)).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    child = int(os.read(read, 100))
    os.close(read)
    assert child != before
    assert backend(database) == before


def test_threads_take_turns(database: Database) -> None:
    """Several threads may use one connection; each gets its own answer."""
    wrong: list[object] = []

    def ask(mark: int) -> None:
        for _ in range(50):
            with database.transaction():
                if database.execute("SELECT %s", (mark,)) != [(mark,)]:
                    wrong.append(mark)

    threads = [threading.Thread(target=ask, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_pickle_and_close(database: Database) -> None:
    """A copy opens its own connection; a closed one opens again."""
    copy = pickle.loads(pickle.dumps(database))
    assert backend(copy) != backend(database)
    copy.close()
    assert copy.execute("SELECT 1") == [(1,)]
    copy.close()


REFUSED = [
    ("/nope", "", SweepError, 'database "nope" does not exist'),
    ("/postgres", "wrong", SweepError, "password authentication failed"),
    ("/postgres?sslmode=full", "", SweepError, "invalid sslmode value"),
    ("/postgres?keepalives=on", "", SweepError, "invalid integer value"),
    ("/postgres?foo=1", "", InputError, 'invalid connection option "foo"'),
]


@pytest.mark.parametrize(("tail", "password", "kind", "words"), REFUSED)
def test_refusals_are_not_retried(
    server: Server, tail: str, password: str, kind: type[SweepError], words: str
) -> None:
    """What no waiting mends is raised at once, with advice."""
    url = server.url().replace("/postgres", tail)
    if password:
        url = f"postgresql://sweep:{password}@127.0.0.1:{server.port}{tail}"
    waits: list[float] = []
    with pytest.raises(SweepError, match=words) as caught:
        Database(url).retry(
            lambda db: db.execute("SELECT 1"), patience_s=30, on_wait=lambda s, _: waits.append(s)
        )
    assert type(caught.value) is kind
    assert caught.value.hint and PASSWORD not in str(caught.value)
    assert waits == []


def test_unknown_host_is_unavailable() -> None:
    """A name that does not resolve may be the name server's fault: it passes."""
    with pytest.raises(DatabaseUnavailable, match="cannot be resolved"):
        Database("postgresql://host.invalid/d", timeout_s=PATIENCE_S).execute("SELECT 1")


def test_schema_is_made_once_by_many(server: Server) -> None:
    """Six commands that make the tables at once all end well, and the tables fit Optuna."""
    import optuna

    server.sql("CREATE DATABASE together")
    url = server.url("together")
    with pytest.raises(SweepError, match="sweep launch"):
        tables.check(Database(url))
    errors: list[BaseException] = []

    def make() -> None:
        try:
            tables.create(url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    tables.check(Database(url))
    storage = optuna.storages.RDBStorage(tables.normalise(url))
    assert storage.get_current_version() == storage.get_head_version() == tables.REVISION
    storage.engine.dispose()


def test_schema_of_another_version(server: Server) -> None:
    """Tables of a newer Optuna are refused by name, and ones of an older one explained."""
    server.sql("CREATE DATABASE versions")
    database = Database(server.url("versions"))
    tables.create(database.url)
    cases = {"v9.0.0.a": "Install a newer sweep", "v2.6.0.a": "optuna storage upgrade"}
    for revision, advice in cases.items():
        database.execute("UPDATE alembic_version SET version_num = %s", (revision,))
        with pytest.raises(SweepError, match=f"schema {revision}.*needs schema") as caught:
            tables.check(database)
        assert advice in caught.value.hint
        with pytest.raises(SweepError, match=revision):
            tables.create(database.url)
    database.close()


def test_schema_lock_held_by_another(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits in vain for another command's table making is told so."""
    server.sql("CREATE DATABASE locked")
    holder = Database(server.url("locked"))
    holder.execute("SELECT pg_advisory_lock(%s)", (locks.TABLES,))
    monkeypatch.setattr(tables, "LOCK_PATIENCE_S", 0.2)
    with pytest.raises(BusyError):
        tables.create(holder.url)
    holder.close()


def test_schema_without_privilege(server: Server) -> None:
    """A user who may not create tables is told what to ask for."""
    server.sql("CREATE DATABASE closed")
    server.sql("CREATE USER guest PASSWORD 'g'")
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", "closed")
    with pytest.raises(SweepError, match="may not create tables"):
        tables.create(f"postgresql://guest:g@127.0.0.1:{server.port}/closed")


def test_a_database_is_as_patient_as_it_was_told() -> None:
    """By itself, within a block, or for one call: so long is one that is away waited for."""
    database = Database("postgresql://u@127.0.0.1:1/x", patience_s=0.0)
    tries = []

    def work(_: Database) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise DatabaseUnavailable("It is away.")
        return "done"

    with pytest.raises(DatabaseUnavailable):
        database.retry(work, transaction=False)
    assert len(tries) == 1
    with database.patient(60.0):
        assert database.retry(work, transaction=False) == "done"
    tries.clear()
    with pytest.raises(DatabaseUnavailable):
        database.retry(work, transaction=False)
    assert database.retry(work, transaction=False, patience_s=60.0) == "done"
    assert pickle.loads(pickle.dumps(database)).patience_s == 0.0
