"""The only place that knows file names, and how a file is written so that nobody sees half of it.

runs/
  .last                         the study last launched from here
  .postgres/                    the embedded server's data
  .images/                      what `sweep build` made, its logs, its caches
  <study>/
    study.json                  the study, resolved
    storage.json                how to reach the database (0600)
    script.sh                   the batch script (Slurm)
    manifest.json               what made it: code, environment, data, execution
    code/<id>/                  the code as it was at a launch
    environment.json            secrets that training needs (Slurm; 0600)
    inside/<key>.json           Python and packages within a container
    logs/<job>_<index>.log      one a task
    local/<job>/                the local executor's arrays
    trials/00007/config.yaml
    trials/00007/attempts/1/    metrics.jsonl control.json exit.json log.txt manifest.json
                                checkpoints/
    reruns/1/                   the same files as an attempt
    tracking/ tensorboard/ mlruns/  the trackers' logs; what they keep in files
    scaling/strong-2/           a small study's folder for each case of a scaling study
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.errors import InputError
from sweep.plain import dataclass

if TYPE_CHECKING:
    from hashlib import _Hash

RUNS_VARIABLE = "SWEEP_RUNS"
RUNS_OWN = _POSTGRES, _IMAGES, _CRASHES = (".postgres", ".images", ".crashes")
_CHUNK_BYTES = 1 << 20


def runs_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the runs folder, absolute: the given one, else $SWEEP_RUNS, else ./runs."""
    return Path(given or os.environ.get(RUNS_VARIABLE) or "runs").expanduser().absolute()


@dataclass(frozen=True)
class Runs:
    """The runs folder of a user."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / _POSTGRES

    @property
    def images(self) -> Path:
        """Images and environments that were built, by the digest of what they were built from."""
        return self.root / _IMAGES

    @property
    def last(self) -> Path:
        return self.root / ".last"

    @property
    def crashes(self) -> Path:
        return self.root / _CRASHES

    def study(self, name: str) -> StudyFolder:
        return StudyFolder(self.root / name)

    def studies(self) -> list[str]:
        """Return the names of the studies that have a folder here."""
        if not self.root.is_dir():
            return []
        return sorted(path.parent.name for path in self.root.glob("*/study.json"))


@dataclass(frozen=True)
class StudyFolder:
    """Everything of one study."""

    root: Path

    @property
    def study(self) -> Path:
        return self.root / "study.json"

    @property
    def storage(self) -> Path:
        return self.root / "storage.json"

    @property
    def secrets(self) -> Path:
        """What training needs of the launching shell's secrets (0600)."""
        return self.root / "environment.json"

    @property
    def script(self) -> Path:
        return self.root / "script.sh"

    @property
    def provenance(self) -> Path:
        """What made the study: its four axes."""
        return self.root / "manifest.json"

    @property
    def code(self) -> Path:
        """The frozen code: a folder for each snapshot."""
        return self.root / "code"

    @property
    def inside(self) -> Path:
        """What containers hold, a file for each image and launch."""
        return self.root / "inside"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def local(self) -> Path:
        return self.root / "local"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def report(self) -> Path:
        """The page that ``sweep report`` writes."""
        return self.results / "report.html"

    @property
    def tracking(self) -> Path:
        """What the trackers' processes say."""
        return self.root / "tracking"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's events, one folder a trial."""
        return self.root / "tensorboard"

    @property
    def python_path(self) -> Path:
        """A folder with nothing but the reporter, to be put on PYTHONPATH."""
        return self.root / "python"

    def trial(self, number: int) -> Path:
        return self.root / "trials" / f"{number:05d}"

    def config(self, number: int) -> Path:
        return self.trial(number) / "config.yaml"

    def attempt(self, number: int, attempt: int) -> AttemptFolder:
        return AttemptFolder(self.trial(number) / "attempts" / str(attempt))

    def rerun(self, k: int) -> AttemptFolder:
        return AttemptFolder(self.root / "reruns" / str(k))


@dataclass(frozen=True)
class AttemptFolder:
    """All that one attempt writes."""

    root: Path

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def control(self) -> Path:
        return self.root / "control.json"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def provenance(self) -> Path:
        """Where the attempt's four axes differ from the study's."""
        return self.root / "manifest.json"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"


def make_private(folder: Path) -> Path:
    """Make a folder (and its parents) that only its owner can enter, and return it.

    Raises:
        InputError: It exists and belongs to somebody else, or cannot be made.
    """
    missing = []
    current = folder
    while not current.exists():
        missing.append(current)
        current = current.parent
    try:
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
    except OSError as error:
        raise InputError(
            f"The folder {path} cannot be made: {error.strerror}.", "Choose another place: --runs."
        ) from None
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder.", "Choose another place: --runs.")
    check_owner(folder)
    return folder


def check_owner(path: Path) -> None:
    """Refuse a path that another user owns: what lies there could be planted."""
    owner = path.stat().st_uid
    if owner not in (os.geteuid(), 0):
        raise InputError(
            f"{path} belongs to another user (uid {owner}).",
            "Use a runs folder of your own: --runs DIR or SWEEP_RUNS.",
        )


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write a whole file or nothing: temporary file in the same folder, then rename.

    Args:
        mode: Permissions of the file.
        sync: Also wait until the disk has it.
    """
    content = data.encode() if isinstance(data, str) else data
    # Not tempfile's: a task needs it for nothing else, and it takes milliseconds to import.
    temporary = path.parent / f".{path.name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
            if sync:
                stream.flush()
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def hash_file(path: Path, whole: _Hash | None = None) -> _Hash:
    """Feed a file's content to a hash, a new SHA-256 when None, and return it."""
    import hashlib  # it loads OpenSSL

    whole = hashlib.sha256() if whole is None else whole
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            whole.update(chunk)
    return whole


def read_json(path: Path) -> Any:
    """Return a JSON file's content, or None where there is no file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def is_private(path: Path) -> bool:
    """Tell whether only the owner may read a file."""
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def read_tail(path: Path, lines: int = 20, limit_bytes: int = 64_000) -> list[str]:
    """Return the last lines of a text file, whatever its encoding; empty where there is none."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - limit_bytes))
            text = stream.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on a file for the block; yields whether it was got.

    ``fcntl`` record locks, because they also hold over NFS where the lock daemon runs.
    """
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            if wait:
                raise
            yield False
            return
        yield True
