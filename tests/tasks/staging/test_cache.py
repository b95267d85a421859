"""Room, locks and what goes first in a place of copies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.core.errors import SweepError
from sweep.core.files import tree_bytes
from sweep.tasks.staging.cache import Cache, DoesNotFit
from sweep.tasks.staging.copying import Copied, write_files

MB = 1 << 20


def fill(cache: Cache, key: str, size: int, used_s: float) -> None:
    """Put a complete copy there, by the steps of a copier."""
    lock = cache.lock_copying(key)
    assert lock is not None
    cache.start(key)
    cache.reserve(key, size)
    tree = cache.partial(key) / "tree"
    tree.mkdir()
    (tree / "x").write_bytes(bytes(size))
    write_files(cache.partial(key) / "done", [Copied("x", size, 0, "")])
    record = {"bytes": size, "sha256": "-", "source": f"/s/{key}", "files": 1}
    cache.complete(key, tree, cache.partial(key) / "done", record)
    os.utime(cache.folder / f"{key}.json", (used_s, used_s))
    os.close(lock)


def keys(cache: Cache) -> list[str]:
    return [entry.key for entry in cache.entries()]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path, 10 * MB)


def test_the_longest_unused_goes_first(cache: Cache) -> None:
    """A copy within the quota removes no more than it needs."""
    for at, key in enumerate("abc"):
        fill(cache, key, 3 * MB, 100.0 + at)
    cache.touch("a")
    assert keys(cache) == ["b", "c", "a"]
    fill(cache, "d", 2 * MB, 200.0)
    assert keys(cache) == ["c", "d", "a"]
    assert not cache.files("b").exists()
    assert cache.find("b") is None
    assert cache.find("c") is not None


def test_what_is_used_stays(cache: Cache) -> None:
    """Not for any room; the refusal names the quota, and nothing was removed in vain."""
    fill(cache, "a", 4 * MB, 1.0)
    fill(cache, "b", 4 * MB, 2.0)
    lock = cache.lock_use("a")
    with pytest.raises(DoesNotFit, match=r"may hold 10\.5 MB .*4\.2 MB are in use; 7\.3 MB more"):
        cache.reserve("c", 7 * MB)
    assert keys(cache) == ["a", "b"]
    assert not cache.discard("a")
    cache.reserve("c", 6 * MB)
    assert keys(cache) == ["a", "c.partial"]
    os.close(lock)
    assert cache.discard("a")


def test_a_partial_copy_counts_as_what_it_will_be(cache: Cache) -> None:
    """While its copier lives; what a dead one has left makes room."""
    lock = cache.lock_copying("a")
    assert lock is not None
    cache.reserve("a", 8 * MB)
    with pytest.raises(DoesNotFit):
        cache.reserve("b", 3 * MB)
    assert cache.lock_copying("a") is None
    os.close(lock)
    cache.reserve("b", 3 * MB)
    assert keys(cache) == ["b.partial"]


def test_a_copy_of_an_earlier_boot_is_none(tmp_path: Path, cache: Cache) -> None:
    """Its disk may not have written all of it; it makes room like any other."""
    earlier = Cache(tmp_path, 10 * MB, boot="earlier")
    fill(earlier, "a", 6 * MB, 1.0)
    assert earlier.find("a") is not None
    assert cache.find("a") is None
    fill(cache, "b", 6 * MB, 2.0)
    assert keys(cache) == ["b"]
    earlier.reserve("c", 3 * MB)
    (cache.partial("c") / "half").touch()
    cache.start("c")
    assert not cache.partial("c").exists()


def test_a_disk_without_room(cache: Cache) -> None:
    """What is free is asked before a byte is written."""
    disk = os.statvfs(cache.folder)
    huge = disk.f_blocks * disk.f_frsize * 2
    whole = Cache(cache.folder.parent, huge * 2)
    with pytest.raises(DoesNotFit, match=r"free, of .* needed"):
        whole.reserve("a", huge)
    with pytest.raises(DoesNotFit, match="inodes left"):
        whole.reserve("a", 1, files=disk.f_files * 2 + 1) if disk.f_files else whole.reserve(
            "a", huge
        )
    assert keys(whole) == []


def test_a_purge_leaves_what_is_used(cache: Cache) -> None:
    fill(cache, "a", MB, 1.0)
    fill(cache, "b", MB, 2.0)
    lock = cache.lock_use("b")
    assert [entry.key for entry in cache.purge(lambda _: True)] == ["a"]
    assert keys(cache) == ["b"]
    os.close(lock)
    cache.purge(lambda entry: entry.used_s > 5)
    assert keys(cache) == ["b"]
    cache.purge(lambda _: True)
    assert keys(cache) == []
    assert tree_bytes(cache.folder) < MB // 2


def test_another_users_folder_is_none_of_ours(tmp_path: Path) -> None:
    """Whoever planted it: nothing is read from it or written into it."""
    (tmp_path / f"sweep-data-{os.geteuid()}").symlink_to(tmp_path)
    with pytest.raises(SweepError, match="is no folder"):
        Cache(tmp_path)
