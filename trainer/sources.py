"""Where streamed examples come from: tar shards, folders of images, Parquet.

A source knows where each example lies and its class, and reads one at a time. Sources are handed
to processes that read, so they open files only when they are asked for an example.
"""

from __future__ import annotations

import bisect
import io
import json
import os
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import pictures, shards
from .failures import InputError

_BLOCK = 512  # of a tar file
_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_LABELS = ("label", "labels", "class", "target")


class Source:
    """Examples by number, from 0.

    Attributes:
        labels: (n,), the class of each.
        starts: The first example of each group of those that lie together (a shard).
    """

    labels: Tensor
    starts: Sequence[int]

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, number: int) -> Tensor:
        """Return an image: channels x height x width, unsigned bytes. Raises: InputError."""
        raise NotImplementedError


class Shards(Source):
    """Examples of some tar files: each is read in one piece, where the index says it lies."""

    def __init__(self, paths: Sequence[Path], size: int = 0) -> None:
        self.paths, self._size = list(paths), size
        tables = [_places(path) for path in paths]
        self.starts = [0]
        for table in tables[:-1]:
            self.starts.append(self.starts[-1] + len(table))
        whole = torch.cat(tables)
        self.labels = whole[:, 2].contiguous()
        self._places = whole[:, :2].contiguous()
        self._opened: dict[int, int] = {}
        if len(whole) and int(self.labels.min()) < 0:
            raise InputError(f"{paths[0].parent}: holds examples without a class (.cls).")

    def read(self, number: int) -> Tensor:
        at = bisect.bisect_right(self.starts, number) - 1
        path = self.paths[at]
        start, end = self._places[number].tolist()
        try:
            if at not in self._opened:
                self._opened[at] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            content = os.pread(self._opened[at], end - start, start)
            key, fields = split_files(content)
        except (OSError, tarfile.TarError) as error:
            raise InputError(f"{path}: example {number}: cannot be read ({error}).") from None
        where = f"{path}: {key}"
        if self._size:
            kind = next((each for each in fields if each in pictures.KINDS), None)
            if kind is not None:
                return pictures.decode(f"{where}.{kind}", kind, fields[kind], self._size)
        return shards.decode(where, fields)[0]


def split_files(content: bytes) -> tuple[str, dict[str, bytes]]:
    """Return (key, {extension: content}) of the part of a tar file that holds one example."""
    key, fields, at = "", dict[str, bytes](), 0
    while at < len(content):
        member = tarfile.TarInfo.frombuf(content[at : at + _BLOCK], "utf-8", "surrogateescape")
        if not member.isreg():  # a long name, a folder
            return _split_any(content)
        at += _BLOCK
        key, _, extension = member.name.rpartition("/")[2].partition(".")
        fields[extension.lower()] = content[at : at + member.size]
        at += -(-member.size // _BLOCK) * _BLOCK
    return key, fields


def _split_any(content: bytes) -> tuple[str, dict[str, bytes]]:
    key, fields = "", dict[str, bytes]()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as opened:
        for member in opened:
            if member.isfile() and (stream := opened.extractfile(member)) is not None:
                key, _, extension = member.name.rpartition("/")[2].partition(".")
                fields[extension.lower()] = stream.read()
    return key, fields


def _places(path: Path) -> Tensor:
    """Return (start, end, class) of each example of a shard: of its index, else by reading it."""
    index = path.with_suffix(".idx")
    try:
        if index.is_file():
            content = bytearray(index.read_bytes())
            found = torch.frombuffer(content, dtype=torch.int64).view(-1, 3)
            if len(found) and int(found[:, :2].max()) <= path.stat().st_size:
                return found
            raise InputError(f"{index}: does not fit {path.name}. Copy both again, or remove it.")
        return _scan(path)
    except (ValueError, RuntimeError):
        raise InputError(f"{index}: is damaged. Copy it again, or remove it.") from None
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(f"{path}: is no whole tar file ({error}).") from None


def _scan(path: Path) -> Tensor:
    rows: list[tuple[int, int, int]] = []
    known, start, end, label = "", 0, 0, -1
    with tarfile.open(path, "r:") as opened:
        for member in opened:
            if not member.isfile():
                continue
            folder, _, name = member.name.rpartition("/")
            stem, _, extension = name.partition(".")
            key = f"{folder}/{stem}"
            if key != known and known:
                rows.append((start, end, label))
                label = -1
            start = member.offset if key != known else start
            known = key
            end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
            if extension.lower() == "cls":
                stream = opened.extractfile(member)
                text = stream.read().decode("ascii", "replace").strip() if stream else ""
                if not text.isdecimal() or len(text) > 9:
                    raise InputError(f"{path}: {member.name}: is no whole number ({text[:20]!r}).")
                label = int(text)
    if not known:
        raise InputError(f"{path}: holds no examples.")
    return torch.tensor([*rows, (start, end, label)])


def find_shards(folder: Path) -> dict[str, list[Path]]:
    """Return the shards of each split: those of the index of the folder, else all train-*.tar.

    Raises:
        InputError: There are none, or they are not those of the index.
    """
    index = folder / "index.json"
    if (folder / "plan.json").exists() and not index.exists():
        raise InputError(f"{folder}: is unfinished. Let `sweep data shard` end first.")
    found = {part: sorted(folder.glob(f"{part}-*.tar")) for part in ("train", "val", "test")}
    if index.exists():
        try:
            splits = json.loads(index.read_text(encoding="utf-8"))["splits"]
            listed = {
                part: [(folder / s["name"], s["bytes"]) for s in splits[part]["shards"]]
                for part in splits
            }
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{index}: cannot be read. Make the shards anew.") from None
        for path, size in (each for part in listed.values() for each in part):
            if not path.is_file() or path.stat().st_size != size:
                raise InputError(
                    f"{path}: is not the shard of {size} bytes that {index.name} names. Copy it "
                    "again; `sweep data verify` looks at all."
                )
        found = {part: [path for path, _ in each] for part, each in listed.items()}
    if not found.get("train"):
        raise InputError(
            f"{folder}: holds no train-*.tar. Name the folder of the shards with --data-dir."
        )
    return found


class Images(Source):
    """Pictures in a folder for each class."""

    def __init__(self, root: Path, classes: dict[str, int], size: int = 0) -> None:
        self._root, self._size = root, size
        self.starts = [0]
        self._names: list[str] = []
        labels = []
        for name, number in classes.items():
            for folder, folders, files in os.walk(root / name, followlinks=True):
                folders.sort()
                for file in sorted(files):
                    if file.rpartition(".")[2].lower() in pictures.KINDS and file[0] != ".":
                        self._names.append(os.path.relpath(os.path.join(folder, file), root))
                        labels.append(number)
        if not labels:
            raise InputError(f"{root}: holds no pictures in folders of classes.")
        self.labels = torch.tensor(labels)

    def read(self, number: int) -> Tensor:
        path = self._root / self._names[number]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
        return pictures.decode(str(path), path.suffix[1:].lower(), content, self._size)


def find_images(folder: Path) -> tuple[dict[str, Path], dict[str, int]]:
    """Return the folder of each split, and the number of each class.

    Raises:
        InputError: There are none, or a split has a class that the training set lacks.
    """
    tops = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    is_divided = "train" in tops and tops <= _SPLITS.keys()
    roots = {_SPLITS[name]: folder / name for name in sorted(tops)} if is_divided else {}
    roots = roots or {"train": folder}
    named: dict[str, list[str]] = {}
    for split, root in roots.items():
        found = root.iterdir() if root.is_dir() else ()
        named[split] = [path.name for path in found if path.is_dir() and path.name[0] != "."]
    if not named["train"]:
        raise InputError(f"{folder}: holds no folders of classes. Name it with --data-dir.")
    strange = sorted({name for names in named.values() for name in names} - {*named["train"]})
    if strange:
        raise InputError(f"{folder}: class {strange[0]} is not in the training set.")
    return roots, number_classes(named["train"])


def number_classes(names: Iterable[str]) -> dict[str, int]:
    """Return the number of each class: of its name, where all are numbers, else by their order."""
    known = set(names)
    if all(_is_number(each) for each in known):
        return {each: int(each) for each in sorted(known, key=int)}
    return {each: number for number, each in enumerate(sorted(known))}


def _is_number(name: str) -> bool:
    return len(name) < 10 and name.isascii() and name.isdecimal() and str(int(name)) == name


class Parquet(Source):
    """Rows of Parquet files with a picture and a class; some row groups are kept while reading."""

    def __init__(self, paths: Sequence[Path], size: int, kept: int) -> None:
        parquet = _import_parquet()
        self._size, self._kept = size, kept
        self._groups: list[tuple[Path, int]] = []
        self._tables: dict[int, Any] = {}
        self.starts = []
        labels: list[Any] = []
        for path in paths:
            try:
                with parquet.ParquetFile(path) as opened:
                    self._picture, label = _columns(path, opened.schema_arrow)
                    for group in range(opened.num_row_groups):
                        self.starts.append(len(labels))
                        self._groups.append((path, group))
                        labels += opened.read_row_group(group, [label]).column(0).to_pylist()
            except (OSError, ValueError) as error:
                raise InputError(f"{path}: cannot be read as Parquet ({error}).") from None
        if not labels or None in labels:
            raise InputError(f"{paths[0]}: holds no rows, or rows without a class.")
        numbers = {each: each for each in set(labels)}
        if isinstance(labels[0], str):
            numbers = number_classes(labels)
        self.labels = torch.tensor([numbers[each] for each in labels])

    def read(self, number: int) -> Tensor:
        at = bisect.bisect_right(self.starts, number) - 1
        path, group = self._groups[at]
        if at not in self._tables:
            while len(self._tables) >= self._kept:
                del self._tables[next(iter(self._tables))]
            with _import_parquet().ParquetFile(path) as opened:
                self._tables[at] = opened.read_row_group(group, [self._picture]).column(0)
        row = number - self.starts[at]
        where = f"{path}: row {row} of group {group}"
        value = self._tables[at][row].as_py()
        content = value["bytes"] if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise InputError(f"{where}: has no picture in {self._picture}.")
        kind = "png" if content.startswith(b"\x89PNG") else "jpg"
        return pictures.decode(where, kind, content, self._size)


def _import_parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError("--data parquet: needs pyarrow. Install it: pip install pyarrow") from None
    return parquet


def _columns(path: Path, schema: Any) -> tuple[str, str]:
    """Return the columns of the picture and of the class."""
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    found = [name for name, kind in kinds.items() if "binary" in kind]
    label = next((name for name in _LABELS if name in kinds), None)
    if len(found) != 1 or label is None:
        raise InputError(
            f"{path}: needs one column of pictures (bytes) and one called label (has "
            f"{', '.join(f'{name}: {kind}' for name, kind in kinds.items())[:300]})."
        )
    return found[0], label


def find_parquet(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split, by how their names begin; all are training where none does.

    Raises:
        InputError: There are none, or some belong to no split.
    """
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    found: dict[str, list[Path]] = {}
    for path in paths:
        words = path.name if path == folder else str(path.relative_to(folder))
        word = next((w for w in _SPLITS if words.startswith((f"{w}-", f"{w}.", f"{w}/"))), "")
        found.setdefault(_SPLITS.get(word, ""), []).append(path)
    if set(found) == {""}:
        return {"train": found[""]}
    if "" in found or "train" not in found:
        strange = f" ({found[''][0].name} belongs to no split)" if "" in found else ""
        raise InputError(f"{folder}: holds no training rows in .parquet files{strange}.")
    return found
