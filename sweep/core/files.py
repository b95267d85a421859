"""Files of ours: private, written whole, read without surprise."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.errors import DamagedFile, InputError, SweepError
from sweep.core.terminal_text import visible_lines

if TYPE_CHECKING:
    from hashlib import _Hash

_CHUNK_BYTES = 1 << 20
_MOST_RECORD_BYTES = 1 << 20
_TRIES = 10  # others that end may tidy up where something is made


def make_private(folder: Path) -> Path:
    """Make a folder (and its parents) that only its owner can enter, and return it.

    Raises:
        InputError: It exists and belongs to somebody else, or cannot be made.
    """
    while True:
        try:
            make_folders(folder)
        except OSError as error:
            where = error.filename or folder
            raise InputError(
                f"The folder {where} cannot be made: {error.strerror}.",
                "Choose another place: --runs.",
            ) from None
        try:
            is_folder = stat.S_ISDIR(folder.stat().st_mode)
        except FileNotFoundError:
            if not os.path.lexists(folder):
                continue  # who used it too has just ended and tidied up
            is_folder = False
        if not is_folder:
            raise InputError(f"{folder} is not a folder.", "Choose another place: --runs.")
        with contextlib.suppress(FileNotFoundError):  # as above
            check_owner(folder)
            return folder


def make_runs_folder(root: Path) -> Path:
    """Make a runs folder, private; a new one within a Git repository is ignored by it.

    Raises: as ``make_private``.
    """
    is_new = not os.path.lexists(root)
    make_private(root)
    if is_new and any(os.path.lexists(above / ".git") for above in root.absolute().parents):
        write_atomic(root / ".gitignore", "*\n", mode=0o644)
    return root


def make_folders(folder: Path) -> None:
    """Make a folder and its parents, each for its owner alone: ``mkdir`` leaves parents as the
    umask has them.

    Raises:
        OSError: One of them cannot be made.
    """
    for tries_left in reversed(range(_TRIES)):
        missing = []
        current = folder
        while not current.exists():
            missing.append(current)
            current = current.parent
        try:
            for path in reversed(missing):
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=0o700)
            return
        except FileNotFoundError:  # who used one of them too has just ended and tidied up
            if not tries_left:
                raise


def entries(folder: Path) -> list[Path]:
    """Return what lies in a folder, by name; nothing where it is not there, or not any more."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def check_owner(path: Path) -> None:
    """Refuse a path that another user owns: what lies there could be planted."""
    owner = path.stat().st_uid
    if owner not in (os.geteuid(), 0):
        raise InputError(
            f"{path} belongs to another user (uid {owner}).",
            "Use a runs folder of your own: --runs DIR or SWEEP_RUNS.",
        )


def move_aside(path: Path, into: Path) -> Path:
    """Move a file or folder into a folder of such things; return where to.

    It keeps its name, with a number where that is taken.
    """
    make_private(into)
    number = 1
    while True:
        target = into / (path.name if number == 1 else f"{path.name}-{number}")
        if not os.path.lexists(target):
            os.rename(path, target)
            return target
        number += 1


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write a whole file or nothing: temporary file in the same folder, then rename.

    Args:
        mode: Permissions of the file.
        sync: Also wait until the disk has it.

    Raises:
        OSError: It cannot be written; it names this file. What was there stays.
    """
    content = data.encode() if isinstance(data, str) else data
    # Not tempfile's: a task needs it for nothing else, and it takes milliseconds to import.
    temporary = path.parent / f".{path.name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o600)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
            if sync:
                stream.flush()
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def write_output(
    path: Path, data: str | bytes, advice: str = "Give another place: -o FILE."
) -> None:
    """Write what the user wants to a place of their choice, as ``cat >`` would.

    A regular file is written whole or not at all, and keeps its mode; one that a link leads to is
    that file. Devices and FIFOs are written to, and stay what they are.

    Raises:
        InputError: It cannot be written.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        _write_through(path, content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.", advice) from error


def _write_through(path: Path, content: bytes) -> None:
    try:
        found = path.stat()
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        write_atomic(Path(os.path.realpath(path)), content, mode=0o666 & ~umask)
        return
    # What is open already (/dev/stdout) may be a regular file, and others go on writing into it.
    if stat.S_ISREG(found.st_mode) and path.absolute().parts[1:2] not in (("dev",), ("proc",)):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        with contextlib.suppress(PermissionError):  # into the folder; the file itself may be ours
            write_atomic(Path(os.path.realpath(path)), content, mode=stat.S_IMODE(found.st_mode))
            return
    with path.open("wb") as stream:
        stream.write(content)


def hash_file(path: Path, whole: _Hash | None = None) -> _Hash:
    """Feed a file's content to a hash, a new SHA-256 when None, and return it."""
    whole = hashlib.sha256() if whole is None else whole
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            whole.update(chunk)
    return whole


def read_text(path: Path) -> str:
    """Return a regular file's text; never wait for anybody.

    Raises:
        OSError: It cannot be read; also where a folder, FIFO or socket stands there.
        UnicodeDecodeError: It is no UTF-8.
    """
    with open(open_regular(path), encoding="utf-8") as stream:
        return stream.read()


def read_json(path: Path, advice: str = "") -> Any:
    """Return a JSON file's content, or None where there is no file.

    Args:
        advice: What to do where it is damaged.

    Raises:
        DamagedFile: It cannot be read, or is no JSON.
    """
    try:
        return json.loads(read_text(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read: {error.strerror or error}.", advice) from error
    except (ValueError, RecursionError) as error:
        raise DamagedFile(
            f"{path} should hold JSON, and cannot be understood: {error}.", advice
        ) from error


def read_object(path: Path, advice: str = "") -> dict[str, Any] | None:
    """Return the JSON object in a file of ours, or None where there is no file.

    Args:
        advice: What to do where it is damaged.

    Raises:
        DamagedFile: It cannot be read, or holds something else.
    """
    found = read_json(path, advice)
    if isinstance(found, dict) or (found is None and not os.path.lexists(path)):
        return found
    raise DamagedFile(
        f"{path} should hold a JSON object, and holds {json.dumps(found)[:60]}.", advice
    )


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor; never wait for anybody.

    Raises:
        OSError: It cannot be read; also where a folder, FIFO or socket stands there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is no regular file", str(path))


def read_record(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Read a small file that training, too, can write: whatever stands there stops nobody.

    Returns:
        The JSON object in it, or None, and then what is wrong in a few words; "" where there is no
        file.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            content = stream.read(_MOST_RECORD_BYTES)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"cannot be read: {error.strerror or error}"
    if not content.strip():
        return None, "is empty"
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None, "is no JSON"
    return (found, "") if isinstance(found, dict) else (None, "is no JSON object")


def read_part(path: Path, offset: int, characters: int) -> tuple[str, int, str]:
    """Return some text of a file from an offset on, and the offset behind it.

    And what is wrong with the file, in a few words; "" also where there is none yet.
    """
    try:
        with open(open_regular(path), encoding="utf-8", errors="replace", newline="") as stream:
            stream.seek(offset)
            return stream.read(characters), stream.tell(), ""
    except FileNotFoundError:
        return "", offset, ""
    except OSError as error:
        return "", offset, f"cannot be read: {error.strerror or error}"


def is_private(path: Path) -> bool:
    """Tell whether only the owner may read a file."""
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def read_head(path: Path, limit_bytes: int = 64_000) -> list[str]:
    """Return the first lines of a text file, as ``read_tail`` returns the last."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            text = stream.read(limit_bytes).decode("utf-8", "replace")
    except OSError:
        return []
    return visible_lines(text)


def read_tail(path: Path, lines: int = 20, limit_bytes: int = 64_000) -> list[str]:
    """Return the last lines of a text file as a terminal shows them, whatever its encoding.

    Empty where none can be read.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - limit_bytes))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return visible_lines(text)[-lines:]


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: an opener for ``open``."""
    return os.open(path, flags, 0o600)


def take_lock(path: Path, *, shared: bool = False) -> int | None:
    """Return the descriptor of a lock just taken, None if somebody else holds it.

    ``flock``: the lock lasts until every copy of the descriptor is closed, a forked child's too.

    Raises:
        SweepError: The file system has no locks.
        OSError: The file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        raise SweepError(
            f"The file system of {path.parent} has no file locks ({error.strerror}).",
            "Put the runs on another one (--runs or SWEEP_RUNS), or use a PostgreSQL server of "
            "your own: SWEEP_STORAGE=postgresql://…",
        ) from None
    return descriptor


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on a file for the block; yields whether it was got.

    ``fcntl`` record locks, because they also hold over NFS where the lock daemon runs.
    """
    make_folders(path.parent)
    with open(path, "a+", opener=open_private) as stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            if wait:
                raise
            yield False
            return
        yield True


def tree_bytes(path: Path) -> int:
    """Return how many bytes a file or a folder with all in it takes; links are not followed."""
    total = 0
    with contextlib.suppress(OSError):
        total = path.lstat().st_size
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder with all in it; links are not followed.

    Folders in it that not even their owner may write (an unpacked image has such) are no hindrance,
    nor is somebody else who removes in it at the same moment: the rest goes all the same.

    Raises:
        SweepError: Something cannot be removed; it is named. A repeat goes on.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            for folder, _, _ in os.walk(path):
                with contextlib.suppress(OSError):
                    mode = os.lstat(folder).st_mode
                    if mode & stat.S_IRWXU != stat.S_IRWXU:
                        os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)
            if sys.version_info >= (3, 12):
                shutil.rmtree(path, onexc=_pass_over_gone)
            else:
                shutil.rmtree(path, onerror=_pass_over_gone)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise SweepError(
            f"{error.filename or path} cannot be removed: {error.strerror}.",
            "Remove what hinders that, and give the command again: it goes on.",
        ) from error


def _pass_over_gone(*_: object) -> None:
    """Go on where somebody else was quicker; called while an exception is handled."""
    if not isinstance(sys.exc_info()[1], FileNotFoundError):
        raise
