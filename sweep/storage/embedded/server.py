"""The server of one data folder: whether it runs, where, and who uses it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2

from sweep.core.errors import DatabaseUnavailable, SweepError
from sweep.storage.embedded.cluster import DATABASE, LOOPBACK, ROLE, data_version
from sweep.storage.embedded.folder import (
    EVERYWHERE,
    Folder,
    ServerRecord,
    find_place,
    locked,
    mind_os_errors,
    read_record,
)
from sweep.storage.embedded.server_processes import Postmaster, read_postmaster

LOCK_WAIT_S = 180.0


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Args:
        data_dir: Its data folder.
        host: The address at which this process reaches it.
        port: Its TCP port.
        password_file: The 0600 file with the password of the role ``sweep``.
        pid: Its main process; 0 when that lives on another host.
        listen: What it listens on: an address, or ``*`` for all.
        stays: It serves other machines until it is told to end.
    """

    data_dir: Path
    host: str
    port: int
    password_file: Path
    pid: int
    listen: str
    stays: bool = False

    def url(self, *, masked: bool = False) -> str:
        """Return its SQLAlchemy URL; masked for whatever is printed.

        Raises:
            SweepError: The password cannot be read.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        password = "***" if masked else self.password()
        return f"postgresql+psycopg2://{ROLE}:{password}@{host}:{self.port}/{DATABASE}"

    def password(self) -> str:
        """Return the password of the role ``sweep``.

        Raises:
            SweepError: It cannot be read, or others could read it.
        """
        try:
            mode = self.password_file.stat().st_mode
            password = self.password_file.read_text().strip()
        except OSError as error:
            raise SweepError(
                f"Cannot read the database's password: {self.password_file}: {error.strerror}."
            ) from None
        if mode & 0o077:
            raise SweepError(
                f"Others can read the database's password in {self.password_file}.",
                f"Make it private: chmod 600 '{self.password_file}'",
            )
        return password


def running(data_dir: Path) -> Server | None:
    """Return the server of this folder if it accepts connections, here or on another host."""
    folder = Folder(Path(data_dir).absolute())
    with mind_os_errors(folder):
        record = read_record(folder)
    postmaster = find_postmaster(folder, record)
    if postmaster is not None:
        return describe(folder, record, postmaster) if postmaster.ready else None
    if record is None or record.place == find_place():
        return None
    server = Server(
        folder.root,
        record.address,
        record.port,
        folder.password_file,
        0,
        record.listen,
        record.stays,
    )
    return server if _answers(server) else None


def status(data_dir: Path) -> dict[str, Any]:
    """Return what ``sweep db status`` shows; ``state`` is running, stopped or absent."""
    folder = Folder(Path(data_dir).absolute())
    facts: dict[str, Any] = {"state": "absent", "data_dir": str(folder.root)}
    with mind_os_errors(folder):
        has_data = folder.has_data()
    if has_data:
        facts.update(state="stopped", version=data_version(folder), log=str(folder.log))
    server = running(folder.root)
    if server is not None:
        record = read_record(folder)
        facts.update(
            state="running",
            on_host=record.place.host if record and not server.pid else socket.gethostname(),
            host=server.host,
            port=server.port,
            listen=server.listen,
            pid=server.pid or None,
            url=server.url(masked=True),
            clients=clients(server),
        )
    return facts


def clients(server: Server) -> int:
    """Return how many other sessions clients hold on the server.

    Raises:
        DatabaseUnavailable: The server does not answer.
    """
    with connected(server) as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


def is_unused(server: Server) -> bool:
    """Return whether no client has a session on the server, our own apart.

    One that does not answer is somebody's: it starts, it ends, or all its connections are in use.
    """
    try:
        return clients(server) == 0
    except DatabaseUnavailable:
        return False


@contextmanager
def using(data_dir: Path) -> Iterator[None]:
    """Keep others from stopping an unused server within a ``with`` block, connected or not.

    Raises:
        BusyError: Another command has been stopping it for three minutes.
    """
    folder = Folder(Path(data_dir).absolute())
    with locked(folder.using_file, wait_s=LOCK_WAIT_S, shared=True):
        yield


@contextmanager
def kept_from_use(data_dir: Path) -> Iterator[None]:
    """Let nobody begin to use the server within a ``with`` block: it is to be stopped.

    Raises:
        BusyError: Somebody uses it, connected or not.
    """
    with locked(Folder(Path(data_dir).absolute()).using_file, wait_s=0.0):
        yield


@contextmanager
def connected(server: Server, database: str = "postgres") -> Iterator[Any]:
    """Give a cursor, in autocommit mode, for as long as a ``with`` block lasts.

    The default database is not the studies' one, so that its statistics tell their use alone.

    Raises:
        DatabaseUnavailable: The server does not answer.
    """
    try:
        # All is said here, so that no PG* variable of the user's bends it.
        connection = psycopg2.connect(
            host=server.host,
            port=server.port,
            user=ROLE,
            password=server.password(),
            dbname=database,
            connect_timeout=5,
            sslmode="disable",
            gssencmode="disable",
            options="",
            application_name="sweep db",
        )
    except psycopg2.OperationalError as error:
        raise DatabaseUnavailable(
            f"The database at {server.host}:{server.port} does not answer: {str(error).strip()}"
        ) from None
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


def find_postmaster(folder: Folder, record: ServerRecord | None) -> Postmaster | None:
    """Return the server's main process if it can be seen from here."""
    here = find_place()
    if record is not None and (record.place.boot_id, record.place.pid_namespace) != (
        here.boot_id,
        here.pid_namespace,
    ):
        return None
    return read_postmaster(folder.pgdata)


def describe(folder: Folder, record: ServerRecord | None, postmaster: Postmaster) -> Server:
    """Return the server that this main process belongs to."""
    listen = record.listen if record else LOOPBACK
    host = LOOPBACK if listen in EVERYWHERE else listen
    stays = record.stays if record else False
    return Server(
        folder.root, host, postmaster.port, folder.password_file, postmaster.pid, listen, stays
    )


def _answers(server: Server) -> bool:
    """Return whether the server of this folder, known by its password, answers there."""
    try:
        with connected(server):
            return True
    except SweepError:
        return False
