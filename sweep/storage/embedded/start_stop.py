"""Start and stop the server of one data folder."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.core.files import make_folders, open_private, take_lock
from sweep.core.paths import PACKAGE
from sweep.core.system.processes import find_process
from sweep.storage.embedded.account import choose_account
from sweep.storage.embedded.binaries import find_binaries
from sweep.storage.embedded.cluster import (
    DATABASE,
    LOOPBACK,
    choose_port,
    configure,
    create_data,
    create_password,
    data_version,
    remove_leftovers,
)
from sweep.storage.embedded.folder import (
    EVERYWHERE,
    Folder,
    ServerRecord,
    Starter,
    check_owner,
    find_place,
    is_locked,
    locked,
    mind_os_errors,
    read_record,
    write_record,
)
from sweep.storage.embedded.interface import find_address
from sweep.storage.embedded.lease import Lease
from sweep.storage.embedded.server import (
    LOCK_WAIT_S,
    Server,
    connected,
    describe,
    find_postmaster,
    running,
)
from sweep.storage.embedded.server_processes import (
    Postmaster,
    Spawn,
    detach,
    plain_environment,
    read_postmaster,
)
from sweep.storage.embedded.succession import AskFate, succeed

# Recovery after a crash replays at most max_wal_size; a slow shared disk takes its time over it.
READY_WAIT_S = 170.0
ORPHANS_WAIT_S = 30.0
STOP_WAIT_S = 60.0
WATCHER_WAIT_S = 30.0  # it looks twice a second, on a busy machine later
IDLE_STOP_S = 600.0
LOG_LIMIT_BYTES = 1 << 20


class DataGone(SweepError):
    """The data of a database that was there are not there any more: an empty one is no help."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(
            f"The database is gone: {folder.root} holds no data (any more).",
            "Move it back, or restore it from a backup; where the runs folder has moved, name its "
            "new place with --runs. Without it the trials' files are left, and the study can be "
            "begun anew: sweep launch STUDY.yaml --set-aside.",
        )


@dataclass(frozen=True)
class Within:
    """The job that a server belongs to.

    Attributes:
        starter: Its id and node, for those who come after it.
        lease: Its right to serve.
        spawn: Starts the server's main process as a child of the job.
    """

    starter: Starter
    lease: Lease
    spawn: Spawn


def start(
    data_dir: Path,
    *,
    make: bool = True,
    listen: str | None = None,
    idle_stop_s: float | None = IDLE_STOP_S,
    ask_fate: AskFate | None = None,
    within: Within | None = None,
) -> Server:
    """Return the running server of this folder, started, and made, if need be.

    Safe to call from any number of processes at once. The server outlives the caller, unless it is
    started within a job.

    Args:
        data_dir: The data folder.
        make: Make the data where there are none.
        listen: The interface or address to listen on, and on nothing else; ``*`` for all. None:
            this machine is to reach it, wherever it listens.
        idle_stop_s: Its watcher stops it when nothing has used it for so many seconds; None: never,
            it serves other machines.
        ask_fate: Says what became of the job that the last server belonged to.
        within: The job that it belongs to.

    Raises:
        DataGone: There are no data, and none are to be made.
        SweepError: It cannot be started; the message ends with the log's last lines.
        BusyError: Another command starts or stops it, and has not ended in three minutes.
        CouldNotAsk: Whether the last server has ended cannot be said now.
    """
    folder = Folder(Path(data_dir).absolute())
    address = listen if listen in (None, *EVERYWHERE) else find_address(listen)
    with mind_os_errors(folder):
        if not make and not folder.has_data():
            raise DataGone(folder)
        make_folders(folder.root)
        check_owner(folder)
        with locked(folder.lock_file, wait_s=LOCK_WAIT_S):
            os.utime(folder.lock_file)  # the watcher reads from it when the server was asked for
            server = running(folder.root)
            if server is None:
                succeed(
                    folder,
                    read_record(folder),
                    ask_fate,
                    within.lease if within else Lease(folder.root),
                )
            server = _adopt(folder, server) or _start(
                folder, address or LOOPBACK, within, stays=idle_stop_s is None
            )
            if idle_stop_s is not None and server.pid:
                _ensure_watcher(folder, idle_stop_s)
    if address is not None and server.listen != address:
        where = "all addresses" if server.listen in EVERYWHERE else f"{server.listen} only"
        raise SweepError(
            f"The database listens on {where}, and {listen} is needed.",
            "Stop it with `sweep db stop`; then it starts anew as needed.",
        )
    return server


def stop(data_dir: Path) -> bool:
    """Stop the server of this folder and return whether there was one.

    Open transactions are rolled back, and what was committed is on disk.

    Raises:
        SweepError: It runs on another host, or does not end.
        BusyError: Another command starts or stops it, and has not ended in three minutes.
    """
    folder = Folder(Path(data_dir).absolute())
    with mind_os_errors(folder):
        try:
            folder.lock_file.stat()  # exists() would take a folder closed to us for an empty one
        except FileNotFoundError:
            return False
        with locked(folder.lock_file, wait_s=LOCK_WAIT_S):
            stopped = stop_locked(folder)
        if stopped:  # its watcher ends with it; after us nobody touches the folder
            _wait(
                lambda: (
                    not is_locked(folder.watch_file)
                    or find_postmaster(folder, read_record(folder))  # somebody has started it again
                ),
                WATCHER_WAIT_S,
            )
        return stopped


def stop_locked(folder: Folder) -> bool:
    """Stop the server, as ``stop`` does, for a caller who holds the folder's lock."""
    record = read_record(folder)
    postmaster = find_postmaster(folder, record)
    if postmaster is None:
        server = running(folder.root)
        if server is not None and record is not None:
            raise SweepError(
                f"The database of {folder.root} runs on {record.place.host}.",
                "Stop it there: sweep db stop",
            )
        _forget(folder, record)
        return False
    # Fast shutdown (INT) ends the sessions and writes a checkpoint; immediate shutdown (QUIT)
    # leaves the work to the recovery at the next start, and loses nothing either.
    for number, wait_s in ((signal.SIGINT, STOP_WAIT_S), (signal.SIGQUIT, 10.0)):
        with suppress(ProcessLookupError):
            os.kill(postmaster.pid, number)
        if _wait(lambda: find_process(postmaster.pid) is None, wait_s):
            folder.record_file.unlink(missing_ok=True)
            return True
    raise SweepError(
        f"The database's main process {postmaster.pid} does not end.\n{_log_tail(folder)}"
    )


def forget(data_dir: Path) -> None:
    """Let other hosts know that the server which this one started last is over, if it is.

    Raises:
        BusyError: Another command starts or stops it, and has not ended in three minutes.
    """
    folder = Folder(Path(data_dir).absolute())
    with mind_os_errors(folder), locked(folder.lock_file, wait_s=LOCK_WAIT_S):
        record = read_record(folder)
        if find_postmaster(folder, record) is None:
            _forget(folder, record)


def _forget(folder: Folder, record: ServerRecord | None) -> None:
    if record is not None and record.place == find_place() and not is_locked(folder.alive_file):
        folder.record_file.unlink(missing_ok=True)


def _start(folder: Folder, listen: str, within: Within | None, *, stays: bool) -> Server:
    """Make the data if there are none and start the server, under the folder's lock."""
    spawn = within.spawn if within else detach
    binaries = find_binaries(major=data_version(folder) if folder.has_data() else None)
    account = choose_account(folder, binaries)
    remove_leftovers(folder)
    if not folder.has_data():
        create_password(folder)
        create_data(folder, binaries, account)
    # Safe, and needed: the lock `alive` was free, so no process of our servers is left, and
    # read_postmaster saw none started in another way. PostgreSQL itself goes by the number in this
    # file alone and would refuse to start while any process of the user has it, a zombie even.
    (folder.pgdata / "postmaster.pid").unlink(missing_ok=True)
    if folder.log.exists() and folder.log.stat().st_size > LOG_LIMIT_BYTES:
        folder.log.replace(folder.log.with_name("log.1"))
    for last_try in (False, False, True):
        port = choose_port(folder, listen)
        address = socket.gethostname() if listen in EVERYWHERE else listen
        # First the record, then the server: a record without a server does no harm.
        starter = within.starter if within else Starter()
        record = ServerRecord(find_place(), address, port, listen, starter, stays)
        write_record(folder, record)
        configure(folder, listen=listen, port=port)
        before = folder.log.stat().st_size if folder.log.exists() else 0
        # Our copy is closed after the start: from then on the server's processes alone hold it.
        with (
            locked(folder.alive_file, wait_s=5) as alive,
            open(folder.log, "ab", opener=open_private) as log,
        ):
            pid = spawn(
                [binaries / "postgres", "-D", folder.pgdata],
                log=log,
                environment=plain_environment(),
                account=account,
                keep=[alive],
            )
        try:
            postmaster = _wait_ready(folder, pid, before)
            break
        except _PortTaken:
            if last_try:
                raise
    server = describe(folder, record, postmaster)
    _create_database(server)
    return server


def _adopt(folder: Folder, server: Server | None) -> Server | None:
    """Return the server that runs, waiting for one that is starting or ending, under the folder's
    lock; None where none does.

    One is still starting when the command that started it was killed meanwhile; one is ending when
    the job that serves it leaves, which does not wait for the lock.
    """
    if server is not None and server.pid == 0:
        return server
    record = read_record(folder)
    if server is None:
        if not _wait(
            lambda: find_postmaster(folder, record) or not is_locked(folder.alive_file),
            ORPHANS_WAIT_S,
        ):
            host = record.place.host if record else "this host"
            raise SweepError(
                f"Processes of the database in {folder.root} live on ({host}), and its main "
                "process is dead or cannot be seen from here (another container?).",
                "Stop it where it was started (sweep db stop), or end its postgres processes.",
            )
        postmaster = find_postmaster(folder, record)
        if postmaster is None:
            return None
        size = folder.log.stat().st_size if folder.log.exists() else 0
        try:
            postmaster = _wait_ready(folder, postmaster.pid, size)
        except _Ended:
            # Its job was ending it; or it could not start, which is seen when we start it.
            if not _wait(lambda: not is_locked(folder.alive_file), ORPHANS_WAIT_S):
                raise
            return None
        server = describe(folder, record, postmaster)
    _create_database(server)  # the command that started it may have been killed just before
    return server


class _Ended(SweepError):
    """The server ended before it accepted connections."""


class _PortTaken(_Ended):
    """Another program took the port between our look and the server's start."""


def _wait_ready(folder: Folder, pid: int, log_offset: int) -> Postmaster:
    """Wait until the server, whose main process is ``pid``, accepts connections.

    Raises:
        SweepError: It ended, or takes too long; with what it wrote to its log after the offset.
    """
    deadline = time.monotonic() + READY_WAIT_S
    while True:
        # In this order, or a server that ended after it was looked for would be missed.
        alive = find_process(pid) is not None
        postmaster = read_postmaster(folder.pgdata)
        if postmaster is not None and postmaster.ready:
            return postmaster
        if not alive:
            tail = _log_tail(folder, log_offset)
            if any(os.strerror(number) in tail for number in (errno.ENOSPC, errno.EDQUOT)):
                raise SweepError(
                    f"The database in {folder.root} does not start: no space is left on its disk.",
                    "Make room there; then it starts when it is next asked.",
                )
            kind = _PortTaken if "Address already in use" in tail else _Ended
            raise kind(f"The database in {folder.root} did not start:\n{tail}")
        if time.monotonic() > deadline:
            raise SweepError(
                f"The database in {folder.root} is not ready after {READY_WAIT_S:.0f} s; it may "
                f"still be recovering from a crash:\n{_log_tail(folder, log_offset)}",
                "Try again, and look at its log.",
            )
        time.sleep(0.02)


def _create_database(server: Server) -> None:
    """Make the database unless it exists; this proves as well that the password opens the door."""
    with connected(server) as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
        if cursor.fetchone() is None:
            cursor.execute(f"CREATE DATABASE {DATABASE}")


def _ensure_watcher(folder: Folder, idle_stop_s: float) -> None:
    """Start the server's watcher unless it has one, under the folder's lock."""
    lock = take_lock(folder.watch_file)
    if lock is None:
        return
    # The folder that this very package was imported from, installed or not.
    home = str(PACKAGE.parent)
    python_path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        with open(folder.log, "ab", opener=open_private) as log:
            detach(
                [
                    *(sys.executable, "-m", "sweep.storage.embedded.watch"),
                    *(str(folder.root), str(idle_stop_s), str(lock)),
                ],
                log=log,
                environment={**plain_environment(), "PYTHONPATH": python_path},
                keep=[lock],
            )
    finally:
        os.close(lock)  # the watcher has it now


def _wait(done: Callable[[], object], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _log_tail(folder: Folder, offset: int = 0) -> str:
    try:
        with folder.log.open("rb") as file:
            file.seek(max(offset, folder.log.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").strip().splitlines()[-10:]
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(lines) or "(nothing in its log)"
