"""Tar shards as WebDataset writes them: the files of one example share a name up to the first dot.

    train-000000.tar    000017.cls  000017.png  000018.cls  000018.png  …
    test-000000.tar

An example has a ``.cls`` (its class, as a decimal number) and an image: ``.npy`` (unsigned bytes,
height x width, or height x width x channels) or a picture. All images of a set have one size.
Splits are ``train``, ``val`` and ``test``; without ``val``, a tenth of ``train`` validates; without
``test``, another tenth is the test set.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import pictures
from .failures import InputError
from .split import Split, cut


def read(folder: Path, seed: int, with_test: bool) -> tuple[Split, Split, Split | None]:
    """Return the training, validation and (where asked for) test split of a folder of shards.

    Args:
        folder: Holds ``train-*.tar`` and perhaps ``val-*.tar`` and ``test-*.tar``.
        seed: Of the split, where shards are missing.
        with_test: Without it test shards are not even opened.

    Raises:
        InputError: No shards, or one that cannot be read; names the shard and the example.
    """
    paths = {part: sorted(folder.glob(f"{part}-*.tar")) for part in ("train", "val", "test")}
    if not paths["train"]:
        raise InputError(
            f"{folder}: holds no train-*.tar. Name the folder of the shards with --data-dir."
        )
    train = read_part(paths["train"])
    tenth = max(1, len(train) // 10)
    validation = test = None
    if not paths["test"]:
        train, test, _ = cut(train, seed, len(train) - tenth, tenth)
    if paths["val"]:
        validation = read_part(paths["val"])
    else:
        train, validation, _ = cut(train, seed, len(train) - tenth, tenth)
    if paths["test"] and with_test:
        test = read_part(paths["test"])
    return train, validation, test if with_test else None


def read_part(paths: list[Path]) -> Split:
    """Return all examples of some shards, in order.

    Raises:
        InputError: A shard or an example cannot be read, or the images differ in size.
    """
    images: list[Tensor] = []
    labels: list[int] = []
    for path in paths:
        for key, fields in _examples(path):
            image, label = decode(f"{path}: {key}", fields)
            if images and image.shape != images[0].shape:
                raise InputError(
                    f"{path}: {key}: an image of {tuple(image.shape)} (channels, height, width) "
                    f"among images of {tuple(images[0].shape)}. Bring all to one size first."
                )
            images.append(image)
            labels.append(label)
    if not images:
        raise InputError(f"{paths[0]}: holds no examples.")
    return Split(torch.stack(images), torch.tensor(labels))


def _examples(path: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield (key, {extension: content}) of one shard; the files of an example lie together."""
    key, fields = "", dict[str, bytes]()
    try:
        with tarfile.open(path) as opened:
            for member in opened:
                if not member.isfile():
                    continue
                folder, _, name = member.name.rpartition("/")
                stem, _, extension = name.partition(".")
                found = f"{folder}/{stem}" if folder else stem
                if found != key and fields:
                    yield key, fields
                    fields = {}
                key = found
                stream = opened.extractfile(member)
                assert stream is not None  # it is a file
                fields[extension.lower()] = stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(f"{path}: is no whole tar file ({error}).") from None
    if fields:
        yield key, fields


def decode(where: str, fields: dict[str, bytes]) -> tuple[Tensor, int]:
    """Return the image and the class of an example's files.

    Raises:
        InputError: One is missing or damaged.
    """
    text = fields.get("cls", b"").decode("ascii", "replace").strip()
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{where}: needs a .cls file with a whole number (got {text[:20]!r}).")
    if "npy" in fields:
        pixels = _read_array(where, fields["npy"])
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).contiguous(), int(text)
    kind = next((each for each in fields if each in pictures.KINDS), None)
    if kind is None:
        others = ", ".join(f".{each}" for each in fields if each != "cls") or "nothing else"
        raise InputError(f"{where}: needs a .npy or a picture beside its .cls (has {others}).")
    return pictures.decode(f"{where}.{kind}", kind, fields[kind]), int(text)


def _read_array(where: str, content: bytes) -> Any:
    import numpy

    try:
        # allow_pickle is off by default: a shard must not be able to run code.
        array = numpy.load(io.BytesIO(content))
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{where}.npy: cannot be read ({error}).") from None
    if array.dtype != numpy.uint8 or array.ndim not in (2, 3):
        raise InputError(
            f"{where}.npy: must be unsigned bytes of two or three dimensions "
            f"(got {array.dtype} of {array.shape})."
        )
    return array if array.ndim == 3 else array[:, :, None]
