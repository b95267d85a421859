"""A user's folder on a machine, where others may have taken its name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sweep.core.errors import SweepError
from sweep.core.system.gpus import GpuPool
from sweep.core.system.own_folder import own_folder
from tests.needs import require


def test_it_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = own_folder("x", (tmp_path,))
    finally:
        os.umask(before)
    assert folder == tmp_path / f"sweep-x-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    assert own_folder("x", (tmp_path / "nowhere", tmp_path)) == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_not_ours_is_passed_over(tmp_path: Path) -> None:
    """Another user's folder, a link to one of ours, a file; with nothing left it says why."""
    require("root")
    places = [tmp_path / name for name in ("another", "link", "file", "free")]
    name = f"sweep-x-{os.geteuid()}"
    for place in places:
        place.mkdir()
    (places[0] / name).mkdir()
    os.chown(places[0] / name, 12345, 12345)
    (places[1] / name).symlink_to(tmp_path)
    (places[2] / name).touch()
    assert own_folder("x", places) == places[3] / name
    with pytest.raises(SweepError) as raised:
        own_folder("x", places[:3])
    assert "belongs to another user (uid 12345)" in str(raised.value)
    assert str(raised.value).count("is no folder") == 2


def test_a_pool_without_room_for_a_lock_holds_none(tmp_path: Path) -> None:
    """What it has taken before is given back: others may have it."""
    (tmp_path / "1").mkdir()  # a lock cannot be opened there
    one, other = GpuPool(["0", "1"], tmp_path), GpuPool(["0"], tmp_path)
    with pytest.raises(OSError):
        one.take(2)
    assert other.take(1) == ["0"]
    other.give(["0"])
