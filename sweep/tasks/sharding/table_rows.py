"""Examples of a data set that is a table: the rows of Parquet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from sweep.core.errors import InputError
from sweep.provenance.data import list_files
from sweep.tasks.sharding.examples import (
    MOST_CLASSES,
    SPLITS,
    DataSource,
    Example,
    ExampleSet,
    Load,
    check_content,
    few,
    hash_listing,
    number_classes,
)

_LABELS = ("label", "labels", "class", "target")
_ROWS = 64  # of Parquet that are read at once
# How files begin, by their extension.
_BEGINNINGS = (
    (b"\x89PNG", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"\x93NUMPY", "npy"),
)


def read_parquet(
    source: Path, label: str | None = None, leave_out: Sequence[str] = ()
) -> DataSource:
    """Return the rows of a Parquet file, or of a folder of such, in their order.

    Files called train…, val… and test…, or in folders called so, are splits. Bytes become files of
    their own (a picture is one by how it begins), the class a .cls, and all other columns one
    .json.

    Args:
        label: The column of the class; absent: the one that is called so.
        leave_out: Columns that are not taken.

    Raises:
        InputError: It cannot be read, or has a column that is not understood.
    """
    listed = sorted(list_files(source))
    files = [file.path for file in listed if file.path.suffix == ".parquet"]
    strange = [f.name for f in listed if f.path not in files and not f.path.name.startswith(".")]
    if strange:
        raise InputError(
            f"{source} holds Parquet files and others: {few(strange)}.",
            "Name a folder of Parquet files alone.",
        )
    try:
        schema = parquet.read_schema(files[0])
        others = [path for path in files if not parquet.read_schema(path).equals(schema)]
        counts = {path: parquet.read_metadata(path).num_rows for path in files}
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise InputError(f"{source} cannot be read as Parquet: {error}.", "") from None
    if others:
        raise InputError(f"{others[0]} has other columns than {files[0]}.", "")
    names = [name for name in schema.names if name not in leave_out]
    if label is None:
        label = next((name for name in _LABELS if name in names), None)
    elif label not in names:
        raise InputError(f"{source} has no column {label}: it has {', '.join(names)}.", "")
    for name in names:
        _check_column(name, schema.field(name).type, is_label=name == label)
    numbers: dict[str, int] | None = None
    classes = class_names(schema, label) if label else None
    if label and "string" in str(schema.field(label).type):
        texts: set[str] = set()
        for path in files:
            column = parquet.read_table(path, columns=[label]).column(0)
            texts.update(str(text) for text in column.unique().to_pylist() if text is not None)
        numbers, classes = number_classes(texts)
    splits: dict[str, list[Path]] = {}
    for path in files:
        splits.setdefault(_split_of(path, source, files), []).append(path)
    if "train" not in splits:
        raise InputError(f"{source} holds no training rows, only {', '.join(splits)}.", "")

    def set_of(paths: list[Path]) -> ExampleSet:
        def read(skip: int) -> Iterator[Load]:
            for path in paths:
                if skip >= counts[path]:
                    skip -= counts[path]
                    continue
                for number, row in enumerate(_rows(path, names)):
                    if number >= skip:
                        where = f"{path.relative_to(source) if path != source else path.name}"
                        yield lambda row=row, at=f"{where}:{number}": _example(  # type: ignore[misc]
                            at, row, label, numbers
                        )
                skip = 0

        return ExampleSet(sum(counts[path] for path in paths), read)

    found = {split: set_of(paths) for split, paths in sorted(splits.items())}
    return DataSource(found, classes, hash_listing(listed))


def _rows(path: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    with parquet.ParquetFile(path) as opened:
        for batch in opened.iter_batches(batch_size=_ROWS, columns=list(names)):
            yield from batch.to_pylist()


def _split_of(path: Path, source: Path, files: Sequence[Path]) -> str:
    def word(one: Path) -> str | None:
        parts = one.relative_to(source).parts if one != source else (one.name,)
        for part in parts:
            found = re.match(r"(train|validation|valid|val|test)(?![A-Za-z])", part)
            if found:
                return SPLITS[found[1]]
        return None

    found = word(path)
    if found is None and any(word(each) for each in files):
        raise InputError(
            f"{path} belongs to no split, and others do by their names.",
            "Call it train-…, val-… or test-….",
        )
    return found or "train"


def _check_column(name: str, kind: Any, *, is_label: bool) -> None:
    """Refuse a column that a shard cannot hold exactly."""
    types = pyarrow.types

    def is_plain(one: Any) -> bool:
        if types.is_list(one) or types.is_large_list(one) or types.is_fixed_size_list(one):
            return is_plain(one.value_type)
        if types.is_dictionary(one):
            return is_plain(one.value_type)
        is_text = types.is_string(one) or types.is_large_string(one)
        is_number = types.is_integer(one) or types.is_floating(one)
        return is_text or is_number or types.is_boolean(one) or types.is_null(one)

    if is_label:
        is_text = types.is_string(kind) or types.is_large_string(kind)
        is_understood = types.is_integer(kind) or is_text
    else:
        is_understood = is_plain(kind) or _is_bytes(kind)
    if not is_understood:
        what = "no class (a whole number or a text)" if is_label else "of a kind that is not stored"
        raise InputError(
            f"column {name} ({kind}) is {what}.",
            f"Leave it out, or write it as text: --leave-out {name}.",
        )
    if _is_bytes(kind) and not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise InputError(f"column {name!r}: bytes need a name of letters, digits, _ and -.", "")


def _is_bytes(kind: Any) -> bool:
    """Whether a column holds files: bytes, or a struct of bytes and path, as datasets writes it."""
    types = pyarrow.types
    if types.is_struct(kind):
        inner = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
        return set(inner) == {"bytes", "path"} and _is_bytes(inner["bytes"])
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def class_names(schema: Any, label: str) -> list[str] | None:
    """Return the names of classes that Hugging Face's datasets has left in a file, if any."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def _example(
    where: str, row: dict[str, Any], label: str | None, numbers: dict[str, int] | None
) -> Example:
    fields: list[tuple[str, bytes]] = []
    rest: dict[str, Any] = {}
    given = row.pop(label) if label else None
    if label and given is None:
        raise InputError(f"{where}: has no {label}.", "Fill it in, or take the row out.")
    for name, value in row.items():
        path = None
        if isinstance(value, dict):
            value, path = value["bytes"], value["path"]
            rest |= {f"{name}.path": path} if path else {}
        if isinstance(value, bytes):
            extension = _kind_of(value)
            is_first = extension != "bin" and extension not in dict(fields)
            fields.append((extension if is_first else f"{name}.{extension}", value))
            check_content(where, extension, value)
        else:
            rest[name] = value
    if rest:
        fields.append(("json", json.dumps(rest, ensure_ascii=False).encode()))
    number = None if given is None else numbers[str(given)] if numbers else int(given)
    if number is not None and not 0 <= number <= MOST_CLASSES:
        raise InputError(f"{where}: {label} is {number}; classes are counted from 0.", "")
    return Example(where, number, tuple(fields))


def _kind_of(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for begin, kind in _BEGINNINGS if content.startswith(begin)), "bin")
