"""Examples of a data set that is arrays: the rows of a .npz file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
from numpy.lib import format as npy

from sweep.core.errors import InputError
from sweep.provenance.data import list_files
from sweep.tasks.sharding.examples import (
    MOST_CLASSES,
    SPLITS,
    DataSource,
    Example,
    ExampleSet,
    Load,
    hash_listing,
)

_INPUTS = ("x", "images", "image", "data")
_TARGETS = ("y", "labels", "label", "targets", "target")


def read_arrays(source: Path) -> DataSource:
    """Return the rows of a .npz file: x and y, or x_train, y_train, x_test, y_test.

    Rows are read one after the other, in their order.

    Raises:
        InputError: It is damaged, or holds other arrays than those.
    """
    try:
        with zipfile.ZipFile(source) as opened:
            names = [name.removesuffix(".npy") for name in opened.namelist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{source} is no .npz file that can be read: {error}.", "") from None
    splits, left = {}, set(names)
    for word, split in {"": "train", **SPLITS}.items():
        suffix = f"_{word}" if word else ""
        inputs = [name for name in names if name.lower() in [each + suffix for each in _INPUTS]]
        targets = [name for name in names if name.lower() in [each + suffix for each in _TARGETS]]
        if len(inputs) == len(targets) == 1 and split not in splits:
            splits[split] = _set_of_rows(source, inputs[0], targets[0])
            left -= {*inputs, *targets}
    if left or "train" not in splits:
        raise InputError(
            f"{source} holds arrays that are not understood: {', '.join(sorted(names))}.",
            "Call them x and y, or x_train, y_train, x_test and y_test.",
        )
    return DataSource(splits, None, hash_listing(list_files(source)))


def _set_of_rows(source: Path, inputs: str, targets: str) -> ExampleSet:
    try:
        with numpy.load(source) as opened:
            labels = opened[targets]
        with zipfile.ZipFile(source) as zipped, zipped.open(f"{inputs}.npy") as stream:
            shape, dtype = _read_head(f"{source}: {inputs}", stream)
    except (ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{source}: {error}.", "") from None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    is_whole = labels.ndim == 1 and labels.dtype.kind in "iu"
    is_whole = is_whole and labels.min(initial=0) >= 0 and labels.max(initial=0) <= MOST_CLASSES
    if not is_whole or not shape or len(labels) != shape[0]:
        raise InputError(
            f"{source}: {targets} of {labels.dtype} {labels.shape} are no classes of the rows of "
            f"{inputs} {shape}.",
            "It must be one whole number from 0 up for each row.",
        )
    row_bytes = dtype.itemsize
    for side in shape[1:]:
        row_bytes *= side

    def load(number: int, content: bytes) -> Example:
        row = numpy.frombuffer(content, dtype).reshape(shape[1:])
        packed = io.BytesIO()
        npy.write_array(packed, row, allow_pickle=False)
        name = f"{inputs}[{number}]"
        return Example(name, int(labels[number]), (("npy", packed.getvalue()),))

    def read(skip: int) -> Iterator[Load]:
        with zipfile.ZipFile(source) as zipped, zipped.open(f"{inputs}.npy") as stream:
            _read_head(f"{source}: {inputs}", stream)
            for number in range(shape[0]):
                content = stream.read(row_bytes)
                if len(content) != row_bytes:
                    raise InputError(f"{source}: {inputs} ends in row {number}.", "")
                if number >= skip:
                    yield lambda number=number, content=content: load(number, content)  # type: ignore[misc]

    return ExampleSet(shape[0], read)


def _read_head(where: str, stream: Any) -> tuple[tuple[int, ...], Any]:
    """Return shape and type of the array that a stream holds; its rows come next."""
    version = npy.read_magic(stream)
    heads = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in heads:
        raise InputError(f"{where}: is of version {version} of the format, which is not read.", "")
    shape, is_fortran, dtype = heads[version](stream)
    if is_fortran or dtype.hasobject:
        raise InputError(
            f"{where}: its rows do not lie one after the other.",
            "Save it with numpy.savez(…, x=numpy.ascontiguousarray(x), y=y).",
        )
    return shape, dtype
