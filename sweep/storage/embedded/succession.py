"""Who may serve the data after a server that was never stopped, and of what: the same, or a copy.

A server that does not answer may be dead, or hang (a node that lost its network, a suspended job)
and wake up. What its scheduler vouches for as ended is followed in place. For all others the data
are copied: the old server is left its own data directory, where it can do no harm, and finds there
that its ``postmaster.pid`` is gone, upon which PostgreSQL ends within a minute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.core.scheduler import JobFate
from sweep.storage.embedded.folder import (
    Folder,
    ServerRecord,
    Starter,
    find_place,
    is_local,
    is_locked,
    may_take_over,
    write,
)
from sweep.storage.embedded.lease import PERIOD_S, PERIODS, Lease

AskFate = Callable[[Starter], JobFate]

POSTMASTER = "postmaster.pid"
_NOT_COPIED = shutil.ignore_patterns(POSTMASTER, "postmaster.opts")


def succeed(folder: Folder, record: ServerRecord | None, ask: AskFate | None, lease: Lease) -> None:
    """Make sure that no server of another host can write to what is served from now on.

    Called under the folder's lock, where no server answers.

    Args:
        record: Of the last start.
        ask: Asks its scheduler what became of the job that made it.
        lease: Ours, or one to look at.

    Raises:
        SweepError: The server's job lives, or nobody can say; or its server still writes.
        CouldNotAsk: The scheduler did not answer.
    """
    if record is None or may_take_over(record, find_place(), local=is_local(folder.root.resolve())):
        return
    where = f"{record.place.host} (at {record.address}:{record.port})"
    if not record.starter.job or ask is None:
        raise SweepError(
            f"The database in {folder.root} was started on {where} and not stopped, and does not "
            "answer.",
            f"Stop it there (sweep db stop). If that host is down or was set up anew, so that no "
            f"server of it can write there any more: rm '{folder.record_file}'",
        )
    if not (lease.is_mine() or lease.is_free()):
        raise SweepError(
            f"Job {record.starter.job} serves the database in {folder.root} on {where}, and does "
            "not answer at present.",
            f"Where it has ended, this passes within {PERIODS * PERIOD_S:.0f} s.",
        )
    fate = ask(record.starter)
    if fate is JobFate.LIVES:
        raise SweepError(
            f"Job {record.starter.job} serves the database in {folder.root} on {where}, and does "
            "not answer.",
            f"Look after it, or end it: scancel {record.starter.job}",
        )
    if fate is JobFate.UNPROVED or is_locked(folder.alive_file):
        begin_generation(folder)


def begin_generation(folder: Folder) -> None:
    """Copy the data directory, and let the copy be served from now on.

    The old one stays, and the one before it goes. The copy is made beside its final place, so that
    a crash leaves nothing half made that would be served.

    Raises:
        SweepError: Its server wrote while it was copied.
        OSError: There is no room, say.
    """
    old, generation = folder.pgdata, folder.generation
    # Until it ends by this, a server that wakes up writes to its own directory alone.
    (old / POSTMASTER).unlink(missing_ok=True)
    new = folder.pgdata_of(generation + 1)
    copy = new.with_name(f"{new.name}.copying")
    shutil.rmtree(copy, ignore_errors=True)
    before = _newest_writes(old)
    try:
        shutil.copytree(old, copy, symlinks=True, ignore=_NOT_COPIED)
        is_whole = _newest_writes(old) == before
    except shutil.Error:  # files that came or went meanwhile
        is_whole = False
    if not is_whole:
        shutil.rmtree(copy, ignore_errors=True)
        raise SweepError(
            f"A server that nobody can reach still writes to {old}.",
            "It ends within a minute; try again then.",
        )
    _give_to_owner(copy, old)
    os.sync()
    shutil.rmtree(new, ignore_errors=True)  # of a command that was killed before the next line
    copy.rename(new)
    write(folder.generation_file, f"{generation + 1}\n")
    folder.record_file.unlink(missing_ok=True)
    if generation > 1:
        shutil.rmtree(folder.pgdata_of(generation - 1), ignore_errors=True)


def _newest_writes(pgdata: Path) -> list[tuple[str, int, int]]:
    """Return what a server cannot write without changing: its log of writes and its control file.

    PostgreSQL writes nothing to a table before its log holds it.
    """
    files = [*(pgdata / "pg_wal").iterdir(), pgdata / "global" / "pg_control"]
    stats = [(path.name, path.stat()) for path in files if path.is_file()]
    return sorted((name, found.st_mtime_ns, found.st_size) for name, found in stats)


def _give_to_owner(copy: Path, old: Path) -> None:
    """Give a copy made by root to whom the data belong, as whom the server runs."""
    owner = old.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for path in [copy, *copy.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
