"""Writing shards: the same bytes each time, kills, duplicates, what is damaged, many examples."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import InputError, SweepError
from sweep.tasks.sharding import shards
from tests.tasks.sharding.sources import pack, picture, read_shards, write_pictures

numpy = pytest.importorskip("numpy")
pytest.importorskip("PIL")
SMALL = 8 << 10  # of a shard


def hashes(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    """Of all files; shards keep below the size, an example larger than that has one of its own."""
    write_pictures(tmp_path / "d", 30)
    (tmp_path / "d" / "cat" / "large.png").write_bytes(picture(1, 4) + bytes(3 * SMALL))
    packed = pack(tmp_path / "d", tmp_path / "a", SMALL)
    pack(tmp_path / "d", tmp_path / "b", SMALL, threads=1)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    index = json.loads((tmp_path / "a" / "index.json").read_text())
    found = index["splits"]["train"]["shards"]
    assert packed.shards == len(found) > 4
    assert sum(each["examples"] for each in found) == 31
    sizes = sorted(each["bytes"] for each in found)
    assert sizes[-2] <= SMALL < sizes[-1]
    for each in found:
        assert hashes(tmp_path / "a")[each["name"]] == each["sha256"]
    named = (tmp_path / "a" / "train-names.jsonl").read_text().splitlines()
    assert len(named) == 31
    first = (tmp_path / "d" / json.loads(named[0])).read_bytes()
    assert read_shards(tmp_path / "a")[0]["png"] == first


@pytest.mark.parametrize("moment", ["write_atomic", "rename"])
@pytest.mark.parametrize("which", [1, 3, 4, 6])
def test_killed_while_sharding(tmp_path: Path, moment: str, which: int) -> None:
    """At each write of a record, and at the end: nothing counts before; then the same bytes."""
    write_pictures(tmp_path / "d", 30)
    pack(tmp_path / "d", tmp_path / "whole", SMALL)
    child = os.fork()
    if child == 0:
        calls = [0]
        owner: Any = shards if moment == "write_atomic" else os
        real = getattr(owner, moment)

        def die(*arguments: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == which or moment == "rename":
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        setattr(owner, moment, die)
        pack(tmp_path / "d", tmp_path / "s", SMALL)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "s").exists()
    said: list[str] = []
    from sweep.tasks.sharding import source_kinds

    shards.pack(source_kinds.read_source(tmp_path / "d"), tmp_path / "s", SMALL, said.append)
    assert hashes(tmp_path / "s") == hashes(tmp_path / "whole")
    assert any("going on after" in text for text in said) == (moment == "rename" or which > 3)
    assert not (tmp_path / "s.part").exists()


def test_a_torn_shard_of_a_killed_run_is_written_again(tmp_path: Path) -> None:
    """A disk may lose what was not synced: what does not have its hash does not count."""
    write_pictures(tmp_path / "d", 30)
    pack(tmp_path / "d", tmp_path / "whole", SMALL)
    (tmp_path / "d" / "cat" / "zz.png").write_text("no picture")
    with pytest.raises(SweepError, match=r"1 examples cannot be read:\n  cat/zz.png"):
        pack(tmp_path / "d", tmp_path / "s", SMALL)
    torn = tmp_path / "s.part" / "train-000001.tar"
    torn.write_bytes(torn.read_bytes()[:-600] + bytes(600))
    packed = pack(tmp_path / "d", tmp_path / "s", SMALL, skip_unreadable=True)
    assert packed.unreadable == ["cat/zz.png: no picture of a known kind"]
    tars = {name: each for name, each in hashes(tmp_path / "s").items() if ".tar" in name}
    assert tars == {n: each for n, each in hashes(tmp_path / "whole").items() if ".tar" in n}


def test_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    """Other data or another size: refused, or begun anew; a folder in use is refused."""
    write_pictures(tmp_path / "d", 6)
    (tmp_path / "d" / "cat" / "x.png").write_text("no picture")
    with pytest.raises(SweepError, match="cannot be read"):
        pack(tmp_path / "d", tmp_path / "s")
    (tmp_path / "d" / "cat" / "x.png").unlink()
    with pytest.raises(InputError, match=r"s\.part holds an unfinished run of other data"):
        pack(tmp_path / "d", tmp_path / "s")
    assert pack(tmp_path / "d", tmp_path / "s", restart=True).examples == {"train": 6}
    with pytest.raises(InputError, match="is there already"):
        pack(tmp_path / "d", tmp_path / "s")


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    """The second one."""
    write_pictures(tmp_path / "d", 2)
    (tmp_path / "s.part").mkdir()
    lock = shards.take_lock(tmp_path / "s.part" / "lock")
    assert lock is not None
    with pytest.raises(InputError, match="being written by another process"):
        pack(tmp_path / "d", tmp_path / "s")
    os.close(lock)
    pack(tmp_path / "d", tmp_path / "s")


def test_duplicates_are_named(tmp_path: Path) -> None:
    """Twice, with another class, and in another split: which would be a leak."""
    write_pictures(tmp_path / "d" / "train", 6)
    for name, number in (("train/cat/again", 0), ("train/dog/other", 2), ("test/dog/leak", 3)):
        path = tmp_path / "d" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    packed = pack(tmp_path / "d", tmp_path / "s")
    kinds = {kind: len(found) for kind, found in packed.duplicates.items()}
    assert kinds == {"twice": 1, "with another class": 1, "in another split": 1}
    lines = shards.duplicate_lines(packed)
    assert lines[0] == "1 examples are there in another split:"
    assert {"leak.png", "3.png"} <= set(lines[1].replace("/", " ").split(" "))
    assert json.loads((tmp_path / "s" / "index.json").read_text())["duplicates"] == kinds


def test_damaged_shards_are_named(tmp_path: Path) -> None:
    """One whose bytes differ, one that is missing; whole ones are counted."""
    write_pictures(tmp_path / "d", 30)
    count = pack(tmp_path / "d", tmp_path / "s", SMALL).shards
    assert shards.verify(tmp_path / "s", print) == count
    damaged = tmp_path / "s" / "train-000001.tar"
    damaged.write_bytes(damaged.read_bytes().replace(b"PNG", b"PNX", 1))
    (tmp_path / "s" / "train-000002.tar").unlink()
    with pytest.raises(SweepError, match=r"000001.tar is damaged, train-000002.tar is missing"):
        shards.verify(tmp_path / "s", print)
    with pytest.raises(InputError, match=r"has no index.json"):
        shards.verify(tmp_path / "d", print)


@pytest.mark.parametrize("count", [400, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_examples_come_back_by_hash(tmp_path: Path, count: int) -> None:
    """Files with a class each: the same set of hashes, read by tarfile, and by the trainer."""
    wanted = set()
    for number in range(count):
        folder = tmp_path / "d" / str(number % 10)
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f"{number}.npy"
        numpy.save(
            written, numpy.array([[number // 2**8 % 256, number % 256, number // 2**16]], "u1")
        )
        wanted.add((hashlib.sha256(written.read_bytes()).hexdigest(), number % 10))
    packed = pack(tmp_path / "d", tmp_path / "s", 128 << 10 if count < 10_000 else 16 << 20)
    assert packed.examples == {"train": count}
    assert packed.duplicates == {}
    found = [
        (hashlib.sha256(each["npy"]).hexdigest(), int(each["cls"]))
        for each in read_shards(tmp_path / "s")
    ]
    assert len(found) == count
    assert set(found) == wanted
    sources = pytest.importorskip("trainer.sources", reason="the trainer needs torch")
    read = sources.Shards(sources.find_shards(tmp_path / "s")["train"])
    pixels = {tuple(read.read(number).flatten().tolist()) for number in range(len(read))}
    assert pixels == {(n // 2**8 % 256, n % 256, n // 2**16) for n in range(count)}
