"""Examples of a data set: what one is, whether it is whole, and which lie in a folder of files."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from sweep.core.errors import InputError
from sweep.provenance.data import DataFile, describe_files, list_files

PICTURES = ("png", "jpg", "jpeg", "bmp", "webp", "tif", "tiff", "gif", "ppm", "pgm")
# What the splits of a data set are called by those who make one, and in its shards.
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
MOST_CLASSES = 10**9
_FILE_COLUMNS = ("file", "filename", "file_name", "path", "image", "image_id", "id")
_LABEL_COLUMNS = ("label", "class", "target", "category")


class UnreadableExample(Exception):
    """An example cannot be read; the text names it and says why."""


@dataclass(frozen=True)
class Example:
    """One example: where it comes from, its class (None where it has none), and its files.

    Attributes:
        fields: (extension, content) of each file that it becomes, without that of the class.
    """

    name: str
    label: int | None
    fields: tuple[tuple[str, bytes], ...]


Load = Callable[[], Example]  # reads one; raises UnreadableExample


@dataclass(frozen=True)
class ExampleSet:
    """The examples of one split, in the order in which shards hold them.

    Attributes:
        count: How many there are.
        read: Yields what loads each one, from the given number on.
    """

    count: int
    read: Callable[[int], Iterator[Load]]


@dataclass(frozen=True)
class DataSource:
    """What lies in a source.

    Attributes:
        splits: ``train``, and perhaps ``val`` and ``test``.
        classes: Their names by number; None where labels are numbers already, or missing.
        listing: Hash of names, sizes and times of its files: whether it is still the same.
    """

    splits: Mapping[str, ExampleSet]
    classes: Sequence[str] | None
    listing: str


def hash_listing(files: Sequence[DataFile]) -> str:
    """Return the hash of the names, sizes and times of some files."""
    return str(describe_files(files)["manifest_sha256"])


def number_classes(labels: Iterable[str]) -> tuple[dict[str, int], list[str] | None]:
    """Return the number of each class, and their names; no names where they are numbers already."""
    known = set(labels)
    if known and all(_is_number(each) for each in known):
        return {each: int(each) for each in known}, None
    names = sorted(known)
    return {each: number for number, each in enumerate(names)}, names


def _is_number(name: str) -> bool:
    """Whether a class is called by its number, in the one way to write it."""
    return len(name) < 10 and name.isascii() and name.isdecimal() and str(int(name)) == name


def check_content(name: str, extension: str, content: bytes) -> None:
    """Decode an array or a picture, to see whether it is whole.

    Raises:
        UnreadableExample: It is not.
        InputError: What decodes pictures is not installed.
    """
    if extension == "npy":
        import numpy

        decode: Callable[[], object] = lambda: numpy.load(io.BytesIO(content))  # noqa: E731
    elif extension in PICTURES:
        try:
            from PIL import Image
        except ImportError:
            raise InputError(
                "Pictures are checked with Pillow, which is not installed.",
                "Install it: pip install 'sweep-hpo[data]'.",
            ) from None
        decode = lambda: Image.open(io.BytesIO(content)).load()  # noqa: E731
    else:
        return
    try:
        decode()
    except Exception as error:  # decoders raise of every kind at damaged bytes
        said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        said = "no picture of a known kind" if "BytesIO" in said else said
        raise UnreadableExample(f"{name}: {said}") from None


def read_folder(
    source: Path, labels: Path | None = None, seed: int = 0, ignore: Sequence[str] = ()
) -> DataSource:
    """Return the examples of a folder of pictures or arrays (.npy), one file each.

    Their classes are the folders in which they lie, or those of a table. Folders called train, val
    and test, and no others, are splits. The order is a function of seed and names.

    Args:
        labels: A CSV file with a column of files and one of labels.
        ignore: Patterns of names that are left out.

    Raises:
        InputError: It holds something else, a file has no class, or there is nothing in it.
    """
    files = [file for file in list_files(source) if _counts(file.name, source, labels, ignore)]
    strange = sorted(file.name for file in files if _extension(file.name) not in (*PICTURES, "npy"))
    if strange:
        raise InputError(
            f"{source} holds what is neither a picture nor an array: {few(strange)}.",
            f"Pictures are {', '.join(PICTURES)}, arrays .npy. Leave others out: "
            f"--ignore '*.{_extension(strange[0]) or 'NAME'}'.",
        )
    if not files:
        raise InputError(f"{source} holds no pictures and no arrays (.npy).", "")
    tops = {file.name.split("/")[0] for file in files if "/" in file.name}
    is_divided = "train" in tops and tops <= SPLITS.keys() and all("/" in f.name for f in files)
    table = _read_table(labels) if labels else None
    found: dict[str, list[tuple[DataFile, str]]] = {}
    without = []
    used = set()
    for file in files:
        split, inner = file.name.split("/", 1) if is_divided else ("train", file.name)
        label: str | None
        if table is not None:
            key = _find_key(table, file.name, inner)
            label = table.get(key or "")
            used.add(key)
        else:
            label = inner.split("/")[0] if "/" in inner else None
        if label is None:
            without.append(file.name)
        else:
            found.setdefault(SPLITS[split], []).append((file, label))
    if without:
        where = f"in {labels}" if labels else "by a folder"
        raise InputError(
            f"{len(without)} of {len(files)} files have no class {where}: {few(without)}.",
            "Put each in a folder named as its class, or give a table: --labels labels.csv.",
        )
    if table is not None and (missing := sorted(table.keys() - used)):
        raise InputError(
            f"{labels} names {len(missing)} files that are not there: {few(missing)}.",
            "Bring them, or take their lines out.",
        )
    numbers, names = number_classes(label for each in found.values() for _, label in each)
    splits = {}
    for split, each in sorted(found.items()):
        order = sorted(each, key=lambda one: _draw(seed, split, one[0].name))
        splits[split] = _set_of_files([(file, numbers[label]) for file, label in order])
    listed = [*files, *(list_files(labels) if labels else [])]
    return DataSource(splits, names, hash_listing(listed))


def few(names: Sequence[str], most: int = 5) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _counts(name: str, source: Path, labels: Path | None, ignore: Sequence[str]) -> bool:
    parts = name.split("/")
    if any(part.startswith(".") for part in parts) or parts[-1] in ("Thumbs.db", "desktop.ini"):
        return False
    if labels is not None and (source / name).samefile(labels):
        return False
    return not any(fnmatch(name, each) or fnmatch(parts[-1], each) for each in ignore)


def _extension(name: str) -> str:
    base = name.rsplit("/", 1)[-1]
    return base.rpartition(".")[2].lower() if "." in base else ""


def _draw(seed: int, split: str, name: str) -> bytes:
    text = f"{seed}\0{split}\0{name}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _set_of_files(files: Sequence[tuple[DataFile, int]]) -> ExampleSet:
    def load(file: DataFile, label: int) -> Example:
        try:
            content = file.path.read_bytes()
        except OSError as error:
            raise UnreadableExample(f"{file.name}: {error.strerror}") from None
        extension = _extension(file.name)
        check_content(file.name, extension, content)
        return Example(file.name, label, ((extension, content),))

    def read(skip: int) -> Iterator[Load]:
        for file, label in files[skip:]:
            yield lambda file=file, label=label: load(file, label)  # type: ignore[misc]

    return ExampleSet(len(files), read)


def _read_table(path: Path) -> dict[str, str]:
    """Return the labels of a CSV file by the names of files.

    Raises:
        InputError: It has no such columns, a line lacks one, or a file stands twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.", "Give a CSV file: --labels.") from None
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise InputError(f"{path} is no CSV file that can be read: {error}.", "") from None
    head = [each.strip().lower() for each in rows[0]] if rows else []
    columns = [
        next((head.index(name) for name in known if name in head), None)
        for known in (_FILE_COLUMNS, _LABEL_COLUMNS)
    ]
    at, labelled = columns
    if at is None or labelled is None:
        raise InputError(
            f"{path}: its first line names no column of files, or none of labels (it is "
            f"{', '.join(head)[:120] or 'empty'}).",
            "Begin it with: file,label",
        )
    found: dict[str, str] = {}
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) <= max(at, labelled) or not row[at].strip() or not row[labelled].strip():
            raise InputError(f"{path}:{number}: has no file or no label: {','.join(row)[:80]}.", "")
        name = row[at].strip().removeprefix("./")
        if name in found:
            raise InputError(f"{path}:{number}: {name} stands in it twice.", "Remove one line.")
        found[name] = row[labelled].strip()
    return found


def _find_key(table: Mapping[str, str], *names: str) -> str | None:
    """Return what a table calls a file: with its folders or without, perhaps no extension."""
    for name in names:
        base = name.rsplit("/", 1)[-1]
        for key in (name, base, name.rpartition(".")[0], base.rpartition(".")[0]):
            if key in table:
                return key
    return None
