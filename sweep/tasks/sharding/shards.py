"""Tar shards as WebDataset reads them, written so that a kill leaves none that counts.

All is written into ``DST.part`` and renamed as a whole at the end. A shard there counts once its
record is written, which comes last; the same command goes on behind the last one that counts. The
same source gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tarfile
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile, InputError, SweepError
from sweep.core.files import hash_file, read_json, remove_tree, take_lock, write_atomic
from sweep.core.sizes import byte_text
from sweep.tasks.sharding.examples import DataSource, Example, ExampleSet, UnreadableExample, few

FORMAT = 1
INDEX = "index.json"
SAY_EVERY_S = 5.0
_BLOCK = 512
_END = 2 * _BLOCK
_SHOWN = 20  # names of duplicates and unreadable examples that are shown


@dataclass
class PackedExamples:
    """What was written.

    Attributes:
        examples: By split.
        shards, bytes: Of all splits.
        duplicates: Pairs of examples with the same content, in words: (how many, the first ones).
        unreadable: Names of examples that were left out, and why.
    """

    examples: dict[str, int] = field(default_factory=dict)
    shards: int = 0
    bytes: int = 0
    duplicates: dict[str, list[str]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def pack(
    contents: DataSource,
    target: Path,
    size_bytes: int,
    say: Callable[[str], object],
    *,
    options: dict[str, Any] | None = None,
    skip_unreadable: bool = False,
    restart: bool = False,
    threads: int = 4,
) -> PackedExamples:
    """Write the shards of a source; return what was written.

    Args:
        target: The folder of the shards; must not be there, or be empty.
        size_bytes: A shard is closed before it grows larger.
        say: Told how far it is, now and then.
        options: What else the shards depend on: a run that goes on must have the same.
        skip_unreadable: Leave unreadable examples out; else they are named and nothing is made.
        restart: Drop what an interrupted run with other options has left.
        threads: That read and check examples.

    Raises:
        InputError: The target is in use, or an earlier run with other options is unfinished.
        SweepError: Some examples cannot be read.
        OSError: Something cannot be written; the same call goes on later.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already.", "Name another folder, or remove it.")
    part = target.with_name(f"{target.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    lock = take_lock(part / "lock")
    if lock is None:
        raise InputError(f"{part} is being written by another process.", "Wait for it.")
    try:
        plan = {
            "format": FORMAT,
            "listing": contents.listing,
            "size": size_bytes,
            "options": options or {},
            "counts": {split: each.count for split, each in contents.splits.items()},
        }
        _start(part, plan, restart)
        packed = PackedExamples()
        seen: dict[str, tuple[str, str, int | None]] = {}
        index: dict[str, Any] = {}
        for split, examples in contents.splits.items():
            writing = _SplitWriter(part, split, examples, size_bytes, say, seen, packed)
            index[split] = writing.run(threads)
        if packed.unreadable and not skip_unreadable:
            raise SweepError(
                f"{len(packed.unreadable)} examples cannot be read:\n  "
                + "\n  ".join(_first(packed.unreadable)),
                "Mend or remove them; or leave them out: --skip-unreadable.",
            )
        _finish(part, target, contents, index, packed)
        return packed
    finally:
        os.close(lock)


def verify(folder: Path, say: Callable[[str], object]) -> int:
    """Hash all shards of a folder; return how many there are.

    Raises:
        InputError: It is no folder of shards.
        SweepError: Some are damaged or missing; names them.
    """
    index = read_index(folder)
    shards = [shard for split in index["splits"].values() for shard in split["shards"]]
    wrong, said = [], time.monotonic()
    for number, shard in enumerate(shards):
        path = folder / shard["name"]
        if not path.is_file():
            wrong.append(f"{shard['name']} is missing")
        elif hash_file(path).hexdigest() != shard["sha256"]:
            wrong.append(f"{shard['name']} is damaged")
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            say(f"{number + 1} of {len(shards)} shards")
    if wrong:
        raise SweepError(f"{folder}: {few(wrong, _SHOWN)}.", "Copy them again, or make them anew.")
    return len(shards)


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a folder of shards.

    Raises:
        InputError: It has none that can be read.
    """
    try:
        index = read_json(folder / INDEX)
    except (OSError, DamagedFile):
        index = None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise InputError(
            f"{folder} has no {INDEX} that sweep can read.",
            "Name a folder that sweep data shard has made.",
        )
    return index


def _start(part: Path, plan: dict[str, Any], restart: bool) -> None:
    """Make sure that what lies in the folder was begun with the same plan."""
    path = part / "plan.json"
    try:
        earlier = read_json(path) if path.exists() else None
    except DamagedFile:
        earlier = {}
    if earlier is not None and earlier != plan:
        if not restart:
            raise InputError(
                f"{part} holds an unfinished run of other data or options.",
                "Begin anew: --restart.",
            )
        for old in part.iterdir():
            if old.name != "lock":
                remove_tree(old) if old.is_dir() else old.unlink()
        earlier = None
    if earlier is None:
        write_atomic(path, json.dumps(plan) + "\n", mode=0o644)


class _SplitWriter:
    """Writes the shards of one split, behind those that are there."""

    def __init__(
        self,
        part: Path,
        split: str,
        examples: ExampleSet,
        size_bytes: int,
        say: Callable[[str], object],
        seen: dict[str, tuple[str, str, int | None]],
        packed: PackedExamples,
    ) -> None:
        self.part, self.split, self.examples = part, split, examples
        self.size_bytes, self.say, self.seen, self.packed = size_bytes, say, seen, packed
        self.shards: list[dict[str, Any]] = []
        self.number = 0  # of examples that are in shards
        self.done = 0  # of examples looked at
        self.began = self.said = time.monotonic()
        self.bytes = 0

    def run(self, threads: int) -> dict[str, Any]:
        """Return the split's part of the index."""
        self._take_up()
        if self.shards:
            self.say(f"{self.split}: going on after {self.done} of {self.examples.count} examples")
        writing = _Shard(self.part, self.split, len(self.shards))
        for item in _ahead(self.examples.read(self.done), threads):
            try:
                example = item.result()
            except UnreadableExample as error:
                writing.unreadable.append(str(error))
            else:
                size = _bytes_of(example)
                if writing.count and writing.at + size + _END > self.size_bytes:
                    self._close(writing)
                    writing = _Shard(self.part, self.split, len(self.shards))
                writing.add(example, self.number)
                self.number += 1
                self.bytes += size
            self.done += 1
            self._say_sometimes()
        if writing.count or writing.unreadable:
            self._close(writing)
        self.packed.examples[self.split] = self.number
        shards = [each for each in self.shards if each["examples"]]
        self.packed.shards += len(shards)
        self.packed.bytes += sum(each["bytes"] for each in shards)
        return {"examples": self.number, "shards": shards}

    def _close(self, writing: _Shard) -> None:
        self._note(writing.close())

    def _take_up(self) -> None:
        """Count the shards that an interrupted run has left, as far as they are whole."""
        while True:
            path = self.part / f"{_stem(self.split, len(self.shards))}.json"
            try:
                record = read_json(path) if path.exists() else None
            except DamagedFile:
                record = None
            if record is None or not self._is_whole(record):
                return
            self._note(record)
            self.number += record["examples"]
            self.done += record["examples"] + len(record["unreadable"])

    def _is_whole(self, record: dict[str, Any]) -> bool:
        if not record["examples"]:
            return True
        path = self.part / record["name"]
        return path.is_file() and hash_file(path).hexdigest() == record["sha256"]

    def _note(self, record: dict[str, Any]) -> None:
        self.shards.append({key: record[key] for key in ("name", "examples", "bytes", "sha256")})
        self.packed.unreadable += record["unreadable"]
        for name, digest, label in record["contents"]:
            if (first := self.seen.get(digest)) is None:
                self.seen[digest] = (self.split, name, label)
                continue
            kind = (
                "with another class"
                if label != first[2]
                else "in another split"
                if self.split != first[0]
                else "twice"
            )
            there = self.packed.duplicates.setdefault(kind, [])
            there.append(f"{name} ({self.split}) is {first[1]} ({first[0]})")

    def _say_sometimes(self) -> None:
        now = time.monotonic()
        if now - self.said >= SAY_EVERY_S:
            self.said = now
            rate = byte_text(int(self.bytes / (now - self.began)))
            self.say(
                f"{self.split}: {self.done} of {self.examples.count} examples, "
                f"{len(self.shards)} shards, {rate}/s"
            )


class _Shard:
    """One shard that is being written; it counts once ``close`` has returned."""

    def __init__(self, part: Path, split: str, number: int) -> None:
        self.part, self.stem = part, _stem(split, number)
        self.path = part / f"{self.stem}.tar"
        self.count = self.at = 0
        self.places = array("q")
        self.contents: list[tuple[str, str, int | None]] = []
        self.unreadable: list[str] = []
        self.hash = hashlib.sha256()
        self.stream: Any = None

    def add(self, example: Example, number: int) -> None:
        """Append an example, named by its number."""
        if self.stream is None:
            self.stream = open(self.path, "wb")  # noqa: SIM115
        start, content_hash = self.at, hashlib.sha256()
        for extension, content in example.fields:
            self._write_file(f"{number:09d}.{extension}", content)
            content_hash.update(content)
        if example.label is not None:
            self._write_file(f"{number:09d}.cls", str(example.label).encode())
        self.places.extend((start, self.at, -1 if example.label is None else example.label))
        self.contents.append((example.name, content_hash.hexdigest()[:32], example.label))
        self.count += 1

    def _write_file(self, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)  # time and owner 0: the same input gives the same bytes
        info.size, info.mode = len(content), 0o644
        self._write(info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % _BLOCK))

    def _write(self, content: bytes) -> None:
        self.stream.write(content)
        self.hash.update(content)
        self.at += len(content)

    def close(self) -> dict[str, Any]:
        """Finish the shard; return its record, which is written last."""
        if self.stream is not None:
            self._write(bytes(_END))
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.stream.close()
            if sys.byteorder == "big":
                self.places.byteswap()
            write_atomic(self.part / f"{self.stem}.idx", self.places.tobytes(), mode=0o644)
        record = {
            "name": self.path.name,
            "examples": self.count,
            "bytes": self.at,
            "sha256": self.hash.hexdigest(),
            "unreadable": self.unreadable,
            "contents": self.contents,
        }
        write_atomic(
            self.part / f"{self.stem}.json", json.dumps(record) + "\n", mode=0o644, sync=True
        )
        return record


def _stem(split: str, number: int) -> str:
    return f"{split}-{number:06d}"


def _bytes_of(example: Example) -> int:
    """Return how many bytes of a tar file an example takes."""
    files = [len(content) for _, content in example.fields]
    files += [] if example.label is None else [1]
    return sum(_BLOCK + size + -size % _BLOCK for size in files)


def _ahead(loads: Iterator[Callable[[], Example]], threads: int) -> Iterator[Future[Example]]:
    """Yield what threads load, in order; a few examples ahead, never all of them in memory."""
    with ThreadPoolExecutor(threads, "sweep-shard") as pool:
        waiting: deque[Future[Example]] = deque()
        try:
            for load in loads:
                waiting.append(pool.submit(load))
                if len(waiting) >= 8 * threads:
                    yield _ended(waiting.popleft())
            while waiting:
                yield _ended(waiting.popleft())
        finally:
            for left in waiting:
                left.cancel()


def _ended(one: Future[Example]) -> Future[Example]:
    one.exception()
    return one


def _first(names: list[str]) -> list[str]:
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return names[:_SHOWN] + more


def duplicate_lines(packed: PackedExamples) -> list[str]:
    """Return what to say of examples that are there more than once."""
    lines = []
    for kind, found in sorted(packed.duplicates.items()):
        lines += [f"{len(found)} examples are there {kind}:", *(f"  {x}" for x in _first(found))]
    return lines


def _finish(
    part: Path, target: Path, contents: DataSource, index: dict[str, Any], packed: PackedExamples
) -> None:
    """Write the index and the names of examples, and give the folder its name.

    A kill behind that leaves some small files which nobody reads.
    """
    records = sorted(path for path in part.glob("*-*.json"))
    for split in index:
        with open(part / f"{split}-names.jsonl", "w", encoding="utf-8") as stream:
            for path in records:
                if path.stem.rpartition("-")[0] == split:
                    named = read_json(path)["contents"]
                    stream.writelines(json.dumps(name) + "\n" for name, _, _ in named)
    whole = {
        "format": FORMAT,
        "classes": list(contents.classes) if contents.classes is not None else None,
        "splits": index,
        "unreadable": packed.unreadable,
        "duplicates": {kind: len(found) for kind, found in sorted(packed.duplicates.items())},
    }
    write_atomic(part / INDEX, json.dumps(whole, indent=1) + "\n", mode=0o644, sync=True)
    os.rename(part, target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    shards = [shard for split in index.values() for shard in split["shards"]]
    kept = {shard["name"].removesuffix(".tar") for shard in shards}
    kept_files = {INDEX, *(f"{split}-names.jsonl" for split in index)}
    kept_files |= {f"{stem}{suffix}" for stem in kept for suffix in (".tar", ".idx")}
    for path in target.iterdir():
        if path.name not in kept_files:
            path.unlink()
