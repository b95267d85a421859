"""Data sets as tensors on the device, their fixed splits, and the order of batches.

Sets of this size live on the device whole: a batch is one indexing operation, there are no loader
processes, and the place in the order is two numbers that a checkpoint can hold. Larger ones are
streamed (``--stream``, see ``trainer.stream``): the place is the same two numbers.

    python -m trainer.data fetch mnist      # get the files; see trainer.fetch
"""

from __future__ import annotations

import gzip
import importlib.util
import math
import os
import sys
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from . import cifar, fetch, shards, stream, synthetic
from .config import InputError, Options
from .split import Split, cut
from .stream import Streamed


@dataclass(frozen=True)
class Data:
    """A data set, split. ``test`` is None unless it was asked for: the search never holds it."""

    train: Split | Streamed
    validation: Split | Streamed
    test: Split | Streamed | None
    classes: int
    mean: float
    deviation: float

    def to(self, device: torch.device) -> Data:
        test = self.test.to(device) if self.test is not None else None
        return replace(
            self, train=self.train.to(device), validation=self.validation.to(device), test=test
        )


# Data sets of the user's own, which may be larger than memory.
STREAMED = ("shards", "images", "parquet")
# Mean and standard deviation of a training set's pixels, in the units of the stored bytes; the
# usual values of MNIST and Fashion-MNIST are 0.1307, 0.3081 and 0.2860, 0.3530 of 255.
_PIXELS = {
    "digits": (4.88, 6.02),
    "mnist": (0.1307 * 255, 0.3081 * 255),
    "fashion-mnist": (0.2860 * 255, 0.3530 * 255),
    # Over all three channels; by channel they are 0.4914, 0.4822, 0.4465 of 255.
    "cifar10": (0.4734 * 255, 0.2516 * 255),
    "synthetic": (128.0, 64.0),
}


def load(options: Options, with_test: bool = False) -> Data:
    """Return the data set that the options name, on the CPU.

    Args:
        options: ``data``, ``data_dir``, ``split_seed``, ``train_fraction``, ``synthetic_…``.
        with_test: Load the test set too. Without it MNIST's test files are not even opened.

    Raises:
        InputError: The files are missing or damaged, or too little data is left to train on.
    """
    train: Split | Streamed
    validation: Split | Streamed
    test: Split | Streamed | None
    if options.stream and options.data not in STREAMED:
        raise InputError(
            f"--stream: {options.data} is no data set that is streamed ({', '.join(STREAMED)} are)."
        )
    if options.data == "digits":
        train, validation, test = cut(_read_digits(), options.split_seed, 1197, 300)
    elif options.data == "synthetic":
        whole = synthetic.make(
            options.synthetic_size * 5 // 4,
            options.split_seed,
            options.synthetic_channels,
            options.synthetic_pixels,
        )
        each = (len(whole) - options.synthetic_size) // 2
        train, validation, test = cut(whole, options.split_seed, options.synthetic_size, each)
    elif options.data == "cifar10":
        place = cifar.find(options.data_dir)
        whole = cifar.read(place, cifar.TRAIN)
        tenth = max(1, len(whole) // 10)  # 45,000 and 5,000 of the published 50,000
        train, validation, _ = cut(whole, options.split_seed, len(whole) - tenth, tenth)
        test = cifar.read(place, cifar.TEST) if with_test else None
    elif options.data in STREAMED and (options.stream or options.data != "shards"):
        folder = Path(options.data_dir or os.environ.get("SWEEP_DATA") or "data")
        train, validation, test = stream.load(options, folder, with_test)
    elif options.data == "shards":
        folder = Path(options.data_dir or os.environ.get("SWEEP_DATA") or "data")
        train, validation, test = shards.read(folder, options.split_seed, with_test)
    else:
        folder = find_folder(options.data, options.data_dir)
        train, validation, _ = cut(
            _read_pair(folder, "train", 60000), options.split_seed, 55000, 5000
        )
        test = _read_pair(folder, "t10k", 10000) if with_test else None
    kept = round(len(train) * options.train_fraction)
    if kept < 1:
        raise InputError(
            f"--train-fraction {options.train_fraction}: leaves no training data of {len(train)} "
            "examples. Take a larger part."
        )
    if isinstance(train, Streamed):
        train = train.draw(kept, options.split_seed)
        if not options.stream:
            train, validation = train.read_whole(), validation.read_whole()  # type: ignore[union-attr]
            test = test.read_whole() if isinstance(test, Streamed) else None
    else:
        # The split is already shuffled, so its first part is a random one.
        train = Split(train.images[:kept], train.labels[:kept])
    classes = 10
    if options.data in STREAMED:
        # Not of the test set: the network must not depend on whether that was loaded.
        classes = 1 + max(int(each.labels.max()) for each in (train, validation))
        if test is not None and int(test.labels.max()) >= classes:
            raise InputError(
                f"--data {options.data}: class {int(test.labels.max())} of the test set is "
                "in no other part. Train with all classes."
            )
    mean, deviation = _PIXELS.get(options.data) or _measure_pixels(train)
    return Data(train, validation, test if with_test else None, classes, mean, deviation)


def _measure_pixels(split: Split | Streamed) -> tuple[float, float]:
    """Return mean and standard deviation of some images' pixels; a deviation above 0.

    Of up to 10,000 images in memory, of 1,000 that are streamed. Sums are of whole numbers: the
    result does not depend on their order.
    """
    images = split.sample(1000) if isinstance(split, Streamed) else split.images[:10000]
    count, total, squares = images.numel(), 0, 0
    for part in images.split(1000):
        pixels = part.long()
        total += int(pixels.sum())
        squares += int((pixels * pixels).sum())
    variance = (squares - total * total / count) / max(1, count - 1)
    return total / count, math.sqrt(max(0.0, variance)) or 1.0


def find_folder(name: str, data_dir: str = "") -> Path:
    """Return the folder of a data set's IDX files.

    Looked for in ``data_dir``, else ``$SWEEP_DATA``, else ``./data``: in the subfolder of the data
    set's name, else there itself.

    Raises:
        InputError: It is not there, or the files are another data set's; says what to run.
    """
    base = Path(data_dir or os.environ.get("SWEEP_DATA") or "data")
    for folder in (base / name, base):
        labels = folder / "train-labels-idx1-ubyte.gz"
        if labels.is_file():
            found = fetch.identify(labels)
            if found not in (None, name):
                raise InputError(f"{folder}: holds the files of {found}, not of {name}.")
            return folder
    raise InputError(
        f"The files of {name} are not in {base / name} nor in {base}.\n"
        f"Get them with `python -m {__package__}.data fetch {name}`, or say where they are with "
        f"--data-dir or SWEEP_DATA.\n{fetch.offline_advice(name, base / name)}"
    )


def _read_pair(folder: Path, part: str, count: int) -> Split:
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    if images.shape != (count, 28, 28) or labels.shape != (count,):
        raise InputError(
            f"{folder}: the {part} files hold {tuple(images.shape)} images and "
            f"{tuple(labels.shape)} labels instead of {count} of 28 x 28. Fetch them again."
        )
    return Split(images.unsqueeze(1), labels.long())


def read_idx(path: Path) -> Tensor:
    """Return the bytes of a gzipped IDX file as a tensor of its shape.

    The format: two zero bytes, the type (8: unsigned byte), the number of dimensions, each
    dimension as a big-endian 32-bit number, the values (http://yann.lecun.com/exdb/mnist/).

    Raises:
        InputError: The file is missing, cut short, or no IDX file of bytes.
    """
    again = f"Fetch it again with `python -m {__package__}.data fetch`."
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. {again}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be unpacked ({error}). {again}") from None
    dimensions = content[3] if len(content) > 4 else 0
    start = 4 + 4 * dimensions
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    size = 1
    for each in shape:
        size *= each
    if content[:3] != b"\0\0\x08" or not dimensions or len(content) != start + size:
        raise InputError(f"{path}: not an IDX file of bytes. {again}")
    # Copied into a bytearray because torch warns about memory that it may not write to.
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).view(shape)


def _read_digits() -> Split:
    """Return scikit-learn's 1,797 digits of 8 x 8 pixels (0 to 16).

    The file is read from the package's folder without importing scikit-learn: that import costs a
    second, in every trial.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise InputError(
            "The digits come with scikit-learn, which is not installed here. "
            "Install it with `pip install scikit-learn`, or take --data synthetic."
        )
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        text = gzip.decompress(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise InputError(f"{path}: cannot read scikit-learn's digits ({error}).") from None
    rows = torch.tensor(
        [[int(float(value)) for value in line.split(",")] for line in text.splitlines()]
    )
    return Split(rows[:, :64].to(torch.uint8).view(-1, 1, 8, 8), rows[:, 64].contiguous())


if __name__ == "__main__":
    sys.exit(fetch.main(sys.argv[1:]))
