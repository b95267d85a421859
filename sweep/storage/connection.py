"""One PostgreSQL connection whose every call ends in bounded time.

A statement timeout on the server does not help when the server itself is stopped, or when the
network drops packets. So the connection is psycopg2's asynchronous kind, and this module waits on
its socket with a deadline of its own.
"""

from __future__ import annotations

import hashlib
import os
import random
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ, encodings

from sweep.core.errors import DatabaseUnavailable, InputError, SweepError
from sweep.storage.prepared import as_prepared
from sweep.storage.resolve import is_address, resolve
from sweep.storage.server_errors import HARMLESS_STATES, advice_for, first_line, is_full, passes
from sweep.storage.url import describe, dsn

T = TypeVar("T")

PATIENCE_S = 60.0  # for a database that is away
FIRST_PAUSE_S = 0.05  # between the first two tries of ``retry``; doubles each time
LONGEST_PAUSE_S = 5.0
FULL_PAUSE_S = 0.5  # the longest one for a server that has no connection left

# A session is given up after a while if the server is full, so that all come to their turn, however
# many share it. The pause is one in which another's try finds the place free.
TURN_S = 5.0
TURN_PAUSE_S = 0.15
# A session that is not used stays, unless the server, the role or the database has few places left.
CROWDED = 0.75
# The taken part of the places that this session shares with others: of the server's, its role's and
# its database's.
TAKEN_SQL = """
SELECT GREATEST(
  (SELECT sum(numbackends) FROM pg_stat_database)
    / (current_setting('max_connections')::float8
       - current_setting('superuser_reserved_connections')::float8),
  (SELECT (SELECT count(*) FROM pg_stat_activity a WHERE a.usesysid = r.oid)
     / r.rolconnlimit::float8
   FROM pg_roles r WHERE r.rolname = current_user AND NOT r.rolsuper AND r.rolconnlimit > 0),
  (SELECT s.numbackends / d.datconnlimit::float8
   FROM pg_database d JOIN pg_stat_database s ON s.datid = d.oid
   WHERE d.datname = current_database() AND d.datconnlimit > 0)
)
"""
POOLERS_STATES = ("08P01", None)  # with which a pooler says what it does not take, and hangs up
UNPREPARED_STATES = ("26000", "42P05")  # no statement of this name; there is one already


class _TimedOut(Exception):
    """A deadline passed while waiting on the connection's socket."""


class Database:
    """One PostgreSQL connection, opened at first use, reopened after it broke.

    Safe for use by several threads (one at a time gets it); not shared over a fork: a child opens
    its own. Interrupting a call (KeyboardInterrupt) closes the connection, so that no half-read
    answer is left in it. Where the server has no place left, ``retry`` takes turns with others.

    Args:
        url: A PostgreSQL URL.
        timeout_s: No call takes longer than this, whatever the server or the network does.
        patience_s: For how long ``retry`` waits for a database that is away, if not told otherwise.
        application: Name under which the session shows in pg_stat_activity.

    Attributes:
        rowcount: Rows that the last statement touched; read it inside ``transaction`` when several
            threads use the object.

    Raises:
        InputError: The URL is not a PostgreSQL URL.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 20.0,
        patience_s: float = PATIENCE_S,
        application: str = "sweep",
    ) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self.application = application
        self.rowcount = -1
        self._dsn = dsn(url)
        self._connection: Any = None
        self._turn_ends = 0.0  # when the session's place may be given to others, monotonic
        self._taken: float | None = None  # of the places, when this session looked last
        self._used = 0.0  # when it was last used, monotonic
        self._statements: dict[str, str] = {}  # prepared ones of this session: names by text
        self._prepares = True
        self._transaction_of: int | None = None  # the thread that has one open
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"Database({describe(self._dsn)})"

    def __getstate__(self) -> dict[str, Any]:
        names = ("url", "timeout_s", "patience_s", "application")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Database.__init__(self, state.pop("url"), **state)

    def connect(self) -> None:
        """Make sure that the database answers.

        Raises:
            As ``execute``.
        """
        self.execute("SELECT 1")

    def execute(self, sql: str, params: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; an empty list for one that has none.

        Outside ``transaction`` it commits by itself.

        Raises:
            DatabaseUnavailable: The database does not answer at present. The connection is closed
                where it is no longer sound; the next call opens a new one.
            SweepError: The database refuses this user, or does not exist.
            psycopg2.Error: The statement is wrong, or a constraint refuses it.
        """
        with self._owned():
            connection = self._open()
            return self._run(connection, sql, params)

    def execute_prepared(
        self, sql: str, params: dict[str, Any], before: str = ""
    ) -> list[tuple[Any, ...]]:
        """Run a statement that this session will run again: it is planned once.

        Args:
            sql: See ``as_prepared``.
            before: A statement without parameters that is run first, in the same transaction.

        Raises:
            As ``execute``.
        """
        first = f"{before};".replace("%", "%%") if before else ""
        if not self._prepares:
            return self.execute(first + sql, params)
        text, names, marks = as_prepared(sql)
        with self._owned():
            connection = self._open()
            name = self._statements.get(text)
            prepare = ""
            if name is None:
                # By its text: a pooler may hand out a session in which another of us prepared some.
                digest = hashlib.sha256(text.encode()).hexdigest()
                name = self._statements[text] = f"sweep_{digest[:16]}"
                prepare = f"PREPARE {name} AS {text};".replace("%", "%%")
            values = [params[key] for key in names]
            try:
                return self._run(connection, f"{prepare}{first}EXECUTE {name}{marks}", values)
            except (psycopg2.Error, ValueError) as error:
                if prepare:  # who knows how far the server has come with it
                    self._statements.pop(text, None)
                    if isinstance(error, psycopg2.Error):
                        self._drop()
                if getattr(error, "pgcode", None) not in UNPREPARED_STATES:
                    raise
                # A pooler between us and the server hands out another session each time.
                self._prepares = False
                self._drop()
                raise DatabaseUnavailable(*self._lost(first_line(error))) from error

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """Run the block's statements as one transaction: all of them, or, on any error, none.

        Raises:
            RuntimeError: A transaction is open already.
            DatabaseUnavailable: As ``execute``. Raised by the final COMMIT, it leaves open whether
                the transaction took place.
        """
        with self._owned():
            if self._transaction_of is not None:
                raise RuntimeError("a transaction is open already")
            connection = self._open()
            self._run(connection, "BEGIN")
            self._transaction_of = threading.get_ident()
            try:
                yield self
                if self._connection is not connection:
                    raise DatabaseUnavailable(*self._lost("the connection was lost"))
                self._run(connection, "COMMIT")
                if self._status == "ROLLBACK":
                    raise RuntimeError("a statement of the transaction failed: nothing was written")
            except BaseException:
                if self._connection is connection:
                    # A failing ROLLBACK has closed the connection, which rolls back as well.
                    with suppress(DatabaseUnavailable):
                        self._run(connection, "ROLLBACK")
                raise
            finally:
                self._transaction_of = None

    def retry(
        self,
        work: Callable[[Database], T],
        *,
        patience_s: float | None = None,
        on_wait: Callable[[float, DatabaseUnavailable], None] | None = None,
        transaction: bool = True,
    ) -> T:
        """Run ``work`` in a transaction, again and again while the database is away.

        The pause between two tries doubles from 0.05 s to 5 s and varies by half, so that many
        workers do not come back at the same moment.

        Args:
            work: Called with this object. Must be idempotent: where the answer to COMMIT was lost,
                it runs again although it took place.
            patience_s: Seconds from the first failure's try after which no new one starts; the
                database's own when None.
            on_wait: Called before each pause with the seconds since the start and the error.
            transaction: False lets each statement of ``work`` commit by itself.

        Raises:
            DatabaseUnavailable: The last one, when patience is over.
        """
        patience_s = self.patience_s if patience_s is None else patience_s
        start = time.monotonic()
        pause_s = FIRST_PAUSE_S
        self._take_turns()
        while True:
            try:
                with self.transaction() if transaction else nullcontext():
                    return work(self)
            except DatabaseUnavailable as error:
                waited_s = time.monotonic() - start
                if waited_s >= patience_s or self._transaction_of == threading.get_ident():
                    raise  # an open transaction of the caller's is lost: only it can begin again
                if on_wait is not None:
                    on_wait(waited_s, error)
                if is_full(error):
                    pause_s = min(pause_s, FULL_PAUSE_S)
                jittered_s = pause_s * random.uniform(0.5, 1.5)
                time.sleep(max(0.0, min(jittered_s, patience_s - waited_s)))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    @contextmanager
    def patient(self, patience_s: float) -> Iterator[None]:
        """Have ``retry`` wait so long for a database that is away, within the block."""
        before, self.patience_s = self.patience_s, patience_s
        try:
            yield
        finally:
            self.patience_s = before

    @property
    def encoding(self) -> str:
        """Python's name of the encoding in which the database keeps text; once it was connected."""
        connection = self._connection
        name = connection.get_parameter_status("server_encoding") if connection else None
        # SQL_ASCII takes any bytes.
        return str(encodings.get(name, "utf-8")) if name and name != "SQL_ASCII" else "utf-8"

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction_of is not None

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        with self._owned():
            self._drop()

    def rest(self, idle_s: float = 0.0) -> None:
        """Close the connection if it has not been used for so long, and others need its place."""
        if self._connection is None or time.monotonic() - self._used < idle_s:
            return
        with self._owned():
            if self._transaction_of is not None or self._connection is None:
                return
            if self._taken is None:
                with suppress(DatabaseUnavailable):
                    self._look_at_places()
            if self._taken is None or self._taken >= CROWDED:
                self._drop()

    def _look_at_places(self) -> float:
        """Return the taken part of the places; 1.0 where none is left."""
        self._taken = float(self.execute(TAKEN_SQL)[0][0])
        return self._taken

    def _take_turns(self) -> None:
        """Give up a session that has been held for a while, if the server is full."""
        if self._connection is None or time.monotonic() < self._turn_ends:
            return
        with self._owned():
            if self._transaction_of is not None or self._connection is None:
                return
            self._begin_turn()
            with suppress(DatabaseUnavailable):  # whoever called will see it as well
                if self._look_at_places() >= 1.0:
                    self._drop()
                    time.sleep(random.uniform(0.3, 1.0) * TURN_PAUSE_S)

    def _begin_turn(self) -> None:
        self._turn_ends = time.monotonic() + TURN_S * random.uniform(0.5, 1.5)

    @contextmanager
    def _owned(self) -> Iterator[None]:
        if self._pid != os.getpid():
            # Forked: the connection and the lock's state are the parent's. psycopg2 leaves a
            # connection of another process alone when it is collected.
            self._connection = None
            self._transaction_of = None
            self._lock = threading.RLock()
            self._pid = os.getpid()
        with self._lock:
            yield

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._statements.clear()
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _open(self) -> Any:
        if self._connection is not None:
            if not self._connection.closed:
                return self._connection
            self._drop()
        if self._transaction_of is not None:
            raise DatabaseUnavailable(*self._lost("the connection was lost in a transaction"))
        deadline = time.monotonic() + self.timeout_s
        connection = None
        try:
            connection = psycopg2.connect(**self._parameters(deadline), async_=1)
            self._wait(connection, deadline)
            self._connection = connection
            self._statements.clear()
            self._taken = None
            self._begin_turn()
            self._run(connection, self._settings(), deadline=deadline)
        except _TimedOut:
            error = f"no connection within {self.timeout_s:g} s"
            raise DatabaseUnavailable(*self._lost(error)) from None
        except psycopg2.Error as error:
            raise self._refusal(error) from error
        finally:
            if connection is not None and self._connection is not connection:
                with suppress(Exception):
                    connection.close()
        return connection

    def _parameters(self, deadline: float) -> dict[str, str]:
        found = {
            "application_name": self.application,
            "client_encoding": "UTF8",
            "keepalives_idle": "30",
            "keepalives_interval": "10",
            "keepalives_count": "3",
            "tcp_user_timeout": str(int(self.timeout_s * 1000)),
        } | self._dsn
        host = found.get("host", "")
        if host and not host.startswith(("/", "@")) and "," not in host and "hostaddr" not in found:
            addresses = [host] if is_address(host) else resolve(host, deadline - time.monotonic())
            if isinstance(addresses, str):
                raise DatabaseUnavailable(*self._lost(addresses))
            found["hostaddr"] = ",".join(addresses)
            found["host"] = ",".join([host] * len(addresses))
        return found

    def _settings(self) -> str:
        # The server gives up shortly before we do: then the session stays usable. And a client that
        # is stopped inside a transaction must not hold its locks for ever.
        limit_ms = int(max(self.timeout_s - 2, 0.9 * self.timeout_s) * 1000)
        return (
            "SET timezone = 'UTC';"
            f"SET statement_timeout = {limit_ms};"
            f"SET idle_in_transaction_session_timeout = {int(self.timeout_s * 2000)};"
            "SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 10;"
            "SET tcp_keepalives_count = 3"
        )

    def _run(
        self, connection: Any, sql: str, params: Any = None, deadline: float | None = None
    ) -> list[tuple[Any, ...]]:
        if deadline is None:
            deadline = time.monotonic() + self.timeout_s
        sound = False
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, params)
                self._wait(connection, deadline)
                self.rowcount = cursor.rowcount
                self._status = cursor.statusmessage
                rows = cursor.fetchall() if cursor.description is not None else []
            sound = True
            self._used = time.monotonic()
            return rows
        except _TimedOut:
            error = f"no answer within {self.timeout_s:g} s"
            raise DatabaseUnavailable(*self._lost(error)) from None
        except psycopg2.Error as error:
            state = error.pgcode
            if state in POOLERS_STATES and advice_for(str(error)) is not None:
                raise self._refusal(error) from error
            if passes(error):
                sound = state in HARMLESS_STATES and not connection.closed
                raise DatabaseUnavailable(*self._lost(first_line(error))) from error
            sound = not connection.closed
            raise
        except (ValueError, TypeError, UnicodeError, IndexError, KeyError):
            sound = True  # the parameters do not fit the statement: nothing was sent
            raise
        finally:
            # Also after a KeyboardInterrupt: its answer would be taken for the next statement's.
            if not sound:
                if self._connection is connection:
                    self._drop()
                else:
                    with suppress(Exception):
                        connection.close()

    @staticmethod
    def _wait(connection: Any, deadline: float) -> None:
        while True:
            state = connection.poll()
            if state == POLL_OK:
                return
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise _TimedOut
            poller = select.poll()  # select.select fails at descriptors above 1023
            poller.register(
                connection.fileno(), select.POLLIN if state == POLL_READ else select.POLLOUT
            )
            poller.poll(remaining_s * 1000)

    def _lost(self, cause: str) -> tuple[str, str]:
        return (
            f"The database {describe(self._dsn)} does not answer: {cause.rstrip('.')}.",
            "Check that the server runs and that this host reaches it; then try again.",
        )

    def _refusal(self, error: Exception) -> SweepError:
        text = str(error).strip()
        where = describe(self._dsn)
        found = advice_for(text)
        if found is not None:
            cls = InputError if found[0] == "invalid connection option" else SweepError
            return cls(f"The database {where} refuses: {first_line(error)}.", found[1])
        return DatabaseUnavailable(*self._lost(first_line(error)))
