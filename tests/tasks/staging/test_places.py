"""Which folder of a node copies are kept in, and why others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.tasks.staging import places
from sweep.tasks.staging.places import Spot, find_spots, mount_of, read_mounts, why_private

MOUNTS = r"""
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw
31 21 0:30 / /common rw - nfs4 server:/export rw
32 21 259:1 / /local rw,relatime shared:3 - xfs /dev/nvme0n1 rw
33 21 259:1 /containers/4711/.4711 /tmp rw,relatime - xfs /dev/nvme0n1 rw
34 31 0:40 / /common/with\040space rw - fuse.sshfs x rw
not a mount
"""


def test_the_table_of_mounts() -> None:
    """The longest point that holds a path is its mount; what is no mount is left out."""
    mounts = read_mounts(MOUNTS)
    assert len(mounts) == 6
    points = {
        "/dev/shm/x": "/dev/shm",
        "/common/a": "/common",
        "/common/with space/b": "/common/with space",
        "/commonness": "/",
        "/tmp": "/tmp",
    }
    for path, point in points.items():
        mount = mount_of(Path(path), mounts)
        assert mount is not None
        assert mount.point == point
    kinds = {mount.point: (mount.is_memory, mount.is_shared) for mount in mounts}
    assert kinds == {
        "/": (False, False),
        "/dev/shm": (True, False),
        "/common": (False, True),
        "/local": (False, False),
        "/tmp": (False, False),
        "/common/with space": (False, True),
    }
    assert mount_of(Path("/x"), []) is None


@pytest.mark.parametrize(
    ("folder", "environ", "why"),
    [
        ("/tmp", {"SLURM_JOB_ID": "4711"}, "the job has a /tmp of its own"),
        ("/tmp", {"SLURM_JOB_ID": "471"}, ""),
        ("/tmp", {}, ""),
        ("/local/slurm-4711", {"SLURM_JOB_ID": "4711"}, "its path names the job"),
        ("/local/user/4712", {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "4712"}, "its path"),
        ("/local/u4711a/x", {"SLURM_JOB_ID": "47"}, ""),
        ("/local", {"SLURM_JOB_ID": "4711"}, ""),
    ],
)
def test_what_one_job_alone_sees(folder: str, environ: dict[str, str], why: str) -> None:
    """Job containers and prologs name the job, in the path or in what is mounted there."""
    path = Path(folder)
    found = why_private(path, mount_of(path, read_mounts(MOUNTS)), environ)
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Usual places below a folder of this test's."""
    for name in ("local", "scratch", "tmp", "job-4711"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(places, "USUAL", (f"{tmp_path}/none", f"{tmp_path}/local"))
    monkeypatch.setattr(places, "LAST", (f"{tmp_path}/tmp",))
    return tmp_path


def lines(folder: Path, **kinds: str) -> str:
    return "".join(
        f"{at} 1 0:{at} / {folder}/{name} rw - {kind} x rw\n"
        for at, (name, kind) in enumerate(kinds.items(), 30)
    )


def test_common_places_come_first(disks: Path) -> None:
    """A $TMPDIR that is the job's own is the last choice; one that is not there is none."""
    environ = {"TMPDIR": f"{disks}/job-4711", "SLURM_JOB_ID": "4711"}
    spots, reasons = find_spots(None, environ, Path("/proc"), mounts="")
    assert [spot.folder.name for spot in spots] == ["local", "tmp", "job-4711"]
    assert [bool(spot.private) for spot in spots] == [False, False, True]
    assert reasons == []


def test_places_that_will_not_do(disks: Path) -> None:
    """Memory, shared file systems and the disk of the data are no place unless they are named."""
    mounts = lines(disks, local="tmpfs", tmp="nfs4", scratch="ext4")
    environ = {"TMPDIR": f"{disks}/scratch"}
    spots, reasons = find_spots(None, environ, disks, mounts=mounts)
    assert spots == []
    assert reasons == [
        f"{disks}/local is in memory",
        f"{disks}/scratch is on the disk of the data",
        f"{disks}/tmp is on a shared file system",
    ]
    named, _ = find_spots(f"{disks}/local", {}, disks, mounts=mounts)
    assert named == [Spot(disks / "local", is_memory=True, is_named=True)]


def test_a_named_place_may_be_a_variables(disks: Path) -> None:
    """Of the task, not of the shell that launched; one that is not set is said."""
    spots, _ = find_spots("$ROOT/${WHICH}", {"ROOT": str(disks), "WHICH": "tmp"}, disks, mounts="")
    assert [spot.folder for spot in spots] == [disks / "tmp"]
    assert find_spots("$NONE/x", {}, disks, mounts="") == (
        [],
        ["staging.place $NONE/x names a variable that is not set here"],
    )
    assert find_spots(f"{disks}/gone", {}, disks, mounts="")[1] == [f"{disks}/gone is no folder"]


def test_this_machines_mounts_are_read() -> None:
    """Of the real table: a place in memory is known as one."""
    spots, _ = find_spots("/dev/shm", {}, Path("/"))
    assert [spot.is_memory for spot in spots] == [True]
