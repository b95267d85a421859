"""Where a node keeps copies of data: the folders that will do, and why others do not."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Where sites put a node's own disk, in the order in which they are tried; $TMPDIR comes after
# them, and /tmp (Slurm's usual TmpFS, and where its job containers are) last.
USUAL = ("/local", "/localscratch", "/local_scratch", "/lscratch", "/scratch/local")
LAST = ("/tmp",)
MEMORY = ("tmpfs", "ramfs", "devtmpfs")
SHARED = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "9p", "panfs"),
    *("orangefs", "pvfs2", "wekafs", "virtiofs", "glusterfs"),
)
_JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_JOBID")
MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Mount:
    """A mounted file system; ``root`` is which folder of it is seen at ``point``."""

    root: str
    point: str
    kind: str

    @property
    def is_memory(self) -> bool:
        return self.kind in MEMORY

    @property
    def is_shared(self) -> bool:
        return self.kind in SHARED or self.kind.startswith("fuse.")


@dataclass(frozen=True)
class Spot:
    """A folder that can hold copies.

    Attributes:
        private: Why this job alone sees it; empty where all of a user's jobs on the node do.
        is_memory: Whether what lies in it is charged to the job's memory.
        is_named: Whether the study file, or a site's defaults, name it.
    """

    folder: Path
    private: str = ""
    is_memory: bool = False
    is_named: bool = False


def read_mounts(text: str) -> list[Mount]:
    """Return what a text like /proc/self/mountinfo lists; lines of another form are left out."""
    found = []
    for line in text.splitlines():
        front, _, back = line.partition(" - ")
        fields, kind = front.split(" "), back.split(" ")[0]
        if len(fields) >= 5 and kind:
            found.append(Mount(_unescaped(fields[3]), _unescaped(fields[4]), kind))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount_of(folder: Path, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount in which a resolved path lies; of several at one point the last counts."""
    found = None
    for mount in mounts:
        inside = folder == Path(mount.point) or Path(mount.point) in folder.parents
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def why_private(folder: Path, mount: Mount | None, environ: Mapping[str, str]) -> str:
    """Say why other jobs do not see a folder, as far as can be told; empty where nothing tells so.

    Slurm's job containers, and most prologs, put the job's id into the path, or into that of the
    folder that is mounted there.
    """
    for job in {environ.get(name, "") for name in _JOB_VARIABLES} - {""}:
        own = re.compile(rf"(?<!\d){re.escape(job)}(?!\d)")
        if own.search(str(folder)):
            return "its path names the job"
        if mount is not None and mount.point != "/" and own.search(mount.root):
            return f"the job has a {mount.point} of its own"
    return ""


def find_spots(
    named: str | None, environ: Mapping[str, str], source: Path, *, mounts: str | None = None
) -> tuple[list[Spot], list[str]]:
    """Return the folders that can hold a copy, the best first, and why others cannot.

    Those that all of a user's jobs see come before those of one job. A folder in memory, on a
    shared file system or on the very disk of the data is used only where it is named.

    Args:
        named: ``staging.place``, with $NAME for variables of the task.
        environ: The task's.
        source: The data.
        mounts: The text of /proc/self/mountinfo; read here when None.
    """
    if mounts is None:
        mounts = _read(MOUNTS)
    listed = read_mounts(mounts)
    if named is not None:
        try:
            path = string.Template(os.path.expanduser(named)).substitute(environ)
        except (KeyError, ValueError):
            return [], [f"staging.place {named} names a variable that is not set here"]
        wanted: list[str] = [path]
    else:
        own = environ.get("TMPDIR") or ""
        wanted = [place for place in (*USUAL, own, *LAST) if place.startswith("/")]
    spots, reasons, seen = [], [], set()
    for place in wanted:
        folder = Path(os.path.realpath(place))
        if folder in seen:
            continue
        seen.add(folder)
        mount = mount_of(folder, listed)
        why_not = _why_not(folder, mount, source, is_named=named is not None)
        if why_not is None:
            private = why_private(folder, mount, environ)
            is_memory = mount is not None and mount.is_memory
            spots.append(Spot(folder, private, is_memory, named is not None))
        elif why_not:
            reasons.append(f"{folder} {why_not}")
    spots.sort(key=lambda spot: bool(spot.private))
    return spots, reasons


def _why_not(folder: Path, mount: Mount | None, source: Path, *, is_named: bool) -> str | None:
    """Say why a folder cannot hold a copy; None where it can, empty where it is simply absent."""
    if not os.path.isdir(folder):
        return "is no folder" if is_named else ""
    if not os.access(folder, os.W_OK | os.X_OK):
        return "may not be written by you"
    if is_named or mount is None:
        return None
    if mount.is_memory:
        return "is in memory"
    if mount.is_shared:
        return "is on a shared file system"
    try:
        same = os.stat(folder).st_dev == os.stat(source).st_dev
    except OSError:
        return None
    return "is on the disk of the data" if same else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
