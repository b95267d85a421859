"""The data folder: the names in it, its locks, and the record of where its server was started.

The layout of ``runs/.postgres`` (0700)::

    pgdata/        PostgreSQL's own data directory; pgdata-2, … of a later generation
    generation     the number of the generation that is served, where it is not the first
    password       of the role ``sweep`` (0600)
    server.json    where the server was last started; gone after a clean stop
    port           the port to try first
    log, log.1     the server's messages
    lock           held for the moments in which a command starts or stops the server
    alive          held by the server's processes for as long as any of them lives; alive-2, …
    using, watch   held by those who need the server without a connection, and by its watcher

All locks are flock: the kernel drops them when the holder dies, so none is ever stale, and on NFS
Linux turns them into byte-range locks that the file server keeps for all hosts.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from sweep.core.errors import BusyError, SweepError
from sweep.core.files import take_lock
from sweep.core.numbers import whole

# File systems that one kernel alone can have mounted for writing; any other may be shared by hosts.
LOCAL_FILE_SYSTEMS = frozenset(
    [
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs"),
        "tmpfs",
        "overlay",
    ]
)


EVERYWHERE = ("*", "0.0.0.0")  # what a server listens on that listens on all addresses


@dataclass(frozen=True)
class Folder:
    """The names in one data folder."""

    root: Path

    @property
    def generation_file(self) -> Path:
        return self.root / "generation"

    @property
    def generation(self) -> int:
        """The number of the data directory that is served.

        Raises:
            SweepError: The file that says so cannot be understood.
        """
        try:
            text = self.generation_file.read_text()
        except FileNotFoundError:
            return 1
        number = whole(text.strip())
        if not number:
            raise SweepError(
                f"{self.generation_file} should hold the number of a data directory, and holds "
                f"{text[:40]!r}.",
                f"Write the highest N of pgdata-N in {self.root} there, 1 where there is none.",
            )
        return number

    def pgdata_of(self, generation: int) -> Path:
        return self.root / ("pgdata" if generation == 1 else f"pgdata-{generation}")

    @property
    def pgdata(self) -> Path:
        return self.pgdata_of(self.generation)

    @property
    def password_file(self) -> Path:
        return self.root / "password"

    @property
    def record_file(self) -> Path:
        return self.root / "server.json"

    @property
    def port_file(self) -> Path:
        return self.root / "port"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def alive_file(self) -> Path:
        generation = self.generation
        return self.root / ("alive" if generation == 1 else f"alive-{generation}")

    @property
    def using_file(self) -> Path:
        return self.root / "using"

    @property
    def watch_file(self) -> Path:
        return self.root / "watch"

    def has_data(self) -> bool:
        return (self.pgdata / "PG_VERSION").exists()


@dataclass(frozen=True)
class PidSpace:
    """What tells whether a process number means the same process for two observers."""

    host: str
    boot_id: str
    pid_namespace: str


@dataclass(frozen=True)
class Starter:
    """The job in which a server was started, as its scheduler knows it; empty outside of one.

    Attributes:
        executor: The scheduler's name; empty in records of earlier versions.
    """

    job: str = ""
    node: str = ""
    executor: str = ""


@dataclass(frozen=True)
class ServerRecord:
    """Where a server was started, and where it listens.

    Attributes:
        stays: It serves other machines until it is told to end: nobody stops it for being unused.
    """

    place: PidSpace
    address: str
    port: int
    listen: str
    starter: Starter = Starter()
    stays: bool = False


def find_place() -> PidSpace:
    """Return the place of this process."""
    return PidSpace(
        host=socket.gethostname(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        pid_namespace=os.readlink("/proc/self/ns/pid"),
    )


def may_take_over(record: ServerRecord | None, here: PidSpace, *, local: bool) -> bool:
    """Return whether a free ``alive`` lock proves that the recorded server is dead.

    The lock proves it for all processes of one kernel (containers too) and for a file system that
    no other kernel can write to. After a reboot of the recorded host it is dead anyway. Elsewhere
    a network file system may keep flock to each host, so a free lock says nothing of other hosts.

    Args:
        record: Where the server was started; None if nobody knows.
        here: The place of this process.
        local: Whether the data lie on a file system that belongs to this kernel alone.
    """
    if record is None or local:
        return True
    return record.place.boot_id == here.boot_id or record.place.host == here.host


def is_local(path: Path, mountinfo: str | None = None) -> bool:
    """Return whether a path lies on a file system that belongs to this kernel alone.

    Args:
        path: An absolute path.
        mountinfo: The text of /proc/self/mountinfo (proc(5)); read from there if None.
    """
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    best, kind = -1, ""
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 5 or "-" not in fields[:-1]:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])  # \040: space
        # The later line wins a tie: it was mounted over the earlier one.
        if path.is_relative_to(mount) and len(mount) >= best:
            best, kind = len(mount), fields[fields.index("-") + 1]
    return kind in LOCAL_FILE_SYSTEMS


def check_owner(folder: Folder) -> None:
    """Refuse data that somebody else could have planted.

    Raises:
        SweepError: They belong to another user, or other users may write there.
    """
    for path in (folder.root, folder.pgdata):
        if not path.exists():
            continue
        found = path.stat()
        if os.geteuid() not in (0, found.st_uid):
            raise SweepError(
                f"{path} belongs to user {found.st_uid}, and you are user {os.geteuid()}.",
                "Work as that user, or with a runs folder of your own (--runs or SWEEP_RUNS).",
            )
        if found.st_mode & 0o022:
            raise SweepError(
                f"Other users may write into {path}.",
                f"If you trust what is in it: chmod go-w '{path}'",
            )


@contextmanager
def mind_os_errors(folder: Folder) -> Iterator[None]:
    """Tell what the system refused, in the user's words.

    Raises:
        SweepError: Instead of an OSError (permission denied, no space, read-only, not a folder).
    """
    try:
        yield
    except OSError as error:
        where = error.filename or folder.root
        raise SweepError(
            f"The database in {folder.root} cannot be used: {where}: {error.strerror}.",
            "Mend that, or choose another place with --runs or SWEEP_RUNS.",
        ) from error


def read_record(folder: Folder) -> ServerRecord | None:
    """Return the record of the last start; None if there is none or it cannot be read."""
    try:
        data = json.loads(folder.record_file.read_text())
        place = PidSpace(**data["place"])
        starter = Starter(**data.get("starter", {}), executor=data.get("executor", ""))
        listen = data["listen"]
        stays = bool(data.get("stays", listen in EVERYWHERE))
        return ServerRecord(place, data["address"], int(data["port"]), listen, starter, stays)
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_record(folder: Folder, record: ServerRecord) -> None:
    data = asdict(record)
    data["executor"] = data["starter"].pop("executor")  # tasks of earlier versions know two keys
    write(folder.record_file, json.dumps(data, indent=1) + "\n")
    write(folder.port_file, f"{record.port}\n")


def write(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all.

    As root the file is given to the folder's owner, as whom the server may run.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        parent = path.parent.stat()
        if os.geteuid() == 0 and parent.st_uid != 0:
            os.chown(temporary, parent.st_uid, parent.st_gid)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_locked(path: Path) -> bool:
    """Return whether somebody holds this lock."""
    descriptor = take_lock(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


@contextmanager
def locked(path: Path, *, wait_s: float, shared: bool = False) -> Iterator[int]:
    """Hold a lock within a ``with`` block.

    Raises:
        BusyError: It could not be had in that time.
    """
    deadline = time.monotonic() + wait_s
    while (descriptor := take_lock(path, shared=shared)) is None:
        if time.monotonic() >= deadline:
            raise BusyError(
                f"Another command has held {path} for {wait_s:.0f} s.",
                "Wait for it to end (it starts or stops the database), then try again.",
            )
        time.sleep(0.02)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
