"""The watcher: stops a server that nothing has used for a while, and ends with it.

``python -m sweep.storage.embedded.watch DATA_DIR IDLE_S LOCK``, started together with the server,
where LOCK is the inherited descriptor of the lock that makes it the only one. It holds no
connection between its looks. A use is: a session that is open or was opened since the last look, a
command that asked for the server, or a process within ``server.using``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from sweep.core.errors import BusyError, DatabaseUnavailable, SweepError
from sweep.storage.embedded.cluster import DATABASE
from sweep.storage.embedded.folder import Folder, is_locked, locked, read_record
from sweep.storage.embedded.server import clients, connected, find_postmaster, running
from sweep.storage.embedded.start_stop import stop_locked

LOOK_S = 15.0
SLICE_S = 0.5
LOCK_WAIT_S = 60.0


def watch(data_dir: Path, idle_s: float, lock: int) -> None:
    """Stop the server of this folder once it has been idle for so long; return when it has ended.

    Args:
        data_dir: The data folder.
        idle_s: Seconds without use after which the server is stopped.
        lock: The descriptor of the watcher's lock, closed at the end.
    """
    folder = Folder(data_dir)
    while True:
        _watch(folder, idle_s)
        # Only a command that holds the folder's lock starts a server, and it starts a watcher
        # unless there is one: so the end is decided, and the watcher's lock given up, under it.
        try:
            with locked(folder.lock_file, wait_s=LOCK_WAIT_S):
                if not lives(folder) or is_for_others(folder):
                    os.close(lock)
                    return
        except BusyError:
            continue


def _watch(folder: Folder, idle_s: float) -> None:
    """Watch until the server has ended, by itself or by us."""
    opened = -1
    last_use = next_look = time.time()
    watched = find_postmaster(folder, read_record(folder))
    # Another may have taken its place between two looks: a job that serves the same data.
    while (now := find_postmaster(folder, read_record(folder))) and watched:
        if now.pid != watched.pid:
            return
        if time.time() >= next_look:
            next_look = time.time() + min(LOOK_S, idle_s / 4)
            try:
                opened_before, opened = opened, count_sessions(folder)
                if opened != opened_before or is_used(folder):
                    last_use = time.time()
            except DatabaseUnavailable:
                last_use = time.time()  # all its connections are in use, or it recovers or stops
            last_use = max(last_use, last_asked(folder))
            if time.time() - last_use > idle_s:
                _stop_unless_used(folder, last_use)
        time.sleep(SLICE_S)


def _stop_unless_used(folder: Folder, last_use: float) -> None:
    # Looked at once more under the lock: a command may have been given the server just now.
    try:
        with locked(folder.lock_file, wait_s=LOCK_WAIT_S):
            if last_asked(folder) <= last_use and not is_used(folder):
                stop_locked(folder)
    except (BusyError, DatabaseUnavailable):
        return  # it is in use after all


def lives(folder: Folder) -> bool:
    """Return whether the server's main process lives, ready or not."""
    return find_postmaster(folder, read_record(folder)) is not None


def is_for_others(folder: Folder) -> bool:
    """Return whether the server serves other machines: then its end is not a watcher's affair."""
    record = read_record(folder)
    return record is not None and record.stays


def is_used(folder: Folder) -> bool:
    """Return whether a client is connected, or a process needs the server without being so."""
    if is_locked(folder.using_file):
        return True
    server = running(folder.root)
    return server is None or clients(server) > 0  # None: it is about to accept clients, or to end


def last_asked(folder: Folder) -> float:
    """Return when a command last asked for the server."""
    return os.stat(folder.lock_file).st_mtime


def count_sessions(folder: Folder) -> int:
    """Return how many sessions clients have opened on the studies' database so far.

    PostgreSQL 13 does not count them (always 0): there a session between two looks is missed.
    """
    server = running(folder.root)
    if server is None:
        return -1
    with connected(server) as cursor:
        cursor.execute(
            "SELECT coalesce((to_jsonb(s) ->> 'sessions')::bigint, 0)"
            " FROM pg_stat_database s WHERE datname = %s",
            (DATABASE,),
        )
        row = cursor.fetchone()
        return int(row[0]) if row else 0


def main(argv: list[str]) -> int:
    try:
        watch(Path(argv[1]), float(argv[2]), int(argv[3]))
    except FileNotFoundError:
        return 0  # the data folder was removed; the server notices that within a minute by itself
    except SweepError as error:
        print(f"sweep's watcher of the database ended: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
