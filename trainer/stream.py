"""Examples that are read while training: never all in memory, each once an epoch, in a known order.

The order of an epoch is a function of the seed and the epoch alone: shards are shuffled, and the
examples of some of them at a time. So the place in it is the number of batches done, as it is for
a set in memory; what processes have read ahead does not count. Rank r of n takes every n-th example
of each batch, so ranks share nothing and lose nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from . import sources
from .config import Options
from .failures import InputError, RanksError
from .split import Split, permute

# Shards whose examples are mixed: more mix better, fewer are read more in one piece.
MIXED = 8
_AHEAD = 4  # batches that each process reads ahead
_PART_BYTES = 64 << 20  # of a part that is measured


@dataclass(frozen=True)
class Batch(Split):
    """Some examples, on the CPU, and their positions in the training set."""

    positions: Tensor


@dataclass(frozen=True)
class Streamed:
    """Some examples of a source, in place of a ``Split``.

    Attributes:
        numbers: (n,), ascending: which of the source's.
        shape: Channels, height and width of all images.
        device: Where parts of it are wanted.
        workers: Processes that read.
    """

    source: sources.Source
    numbers: Tensor
    shape: torch.Size
    device: torch.device
    workers: int

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def labels(self) -> Tensor:
        return self.source.labels[self.numbers]

    def to(self, device: torch.device) -> Streamed:
        return replace(self, device=device)

    def make_buffer(self, count: int) -> Split:
        """Return room for so many examples, on the device."""
        return Split(
            torch.zeros(count, *self.shape, dtype=torch.uint8, device=self.device),
            torch.zeros(count, dtype=torch.int64, device=self.device),
        )

    def draw(self, count: int, seed: int) -> Streamed:
        """Return a random part of it; all of it where that is as many."""
        if count == len(self):
            return self
        drawn = permute(len(self), seed, "fraction")[:count]
        return replace(self, numbers=self.numbers[drawn].sort().values)

    def sample(self, most: int) -> Tensor:
        """Return some images, evenly spread."""
        step = -(-len(self) // most)
        return self._reader().take(self.numbers[::step].tolist())

    def read_whole(self) -> Split:
        """Return all of it in memory."""
        parts = [part.images for part in self.load(self.numbers.split(256))]
        return Split(torch.cat(parts), self.labels)

    def parts(self, rank: int, world: int, at_once: int) -> Iterator[Split]:
        """Yield a rank's share, every world-th example, in parts; as many for all ranks."""
        size = self.shape.numel()
        at_once = max(1, min(at_once, _PART_BYTES // size))
        own = self.numbers[rank::world]
        wanted = [
            own[start : start + at_once] for start in range(0, -(-len(self) // world), at_once)
        ]
        for part in self.load(wanted):
            yield part.to(self.device)

    def load(self, wanted: Sequence[Tensor]) -> Iterator[Split]:
        """Yield examples of the source by their numbers, read ahead by processes, in this order.

        Raises:
            InputError: One cannot be read; names it.
            RanksError: A process that reads was killed.
        """
        loader = DataLoader(
            self._reader(),
            sampler=_Lists(wanted),
            batch_size=None,
            num_workers=min(self.workers, len(wanted)),
            prefetch_factor=_AHEAD if self.workers and wanted else None,
            pin_memory=self.device.type == "cuda",
            # A source of its own: what the training draws must not depend on how often it loads.
            generator=torch.Generator().manual_seed(0),
            multiprocessing_context="fork" if self.workers and wanted else None,
        )
        found = iter(loader)
        for numbers in wanted:
            try:
                images, problem = next(found)
            except RuntimeError as error:
                if "DataLoader worker" not in str(error):
                    raise
                raise RanksError(
                    "a process that reads examples was killed, by lack of memory perhaps. Take "
                    "fewer --workers, or more memory."
                ) from error
            if problem:
                raise InputError(problem)
            yield Split(images, self.source.labels[numbers])

    def _reader(self) -> _Reader:
        return _Reader(self.source, self.shape)


class _Lists(Sampler[list[int]]):
    """Numbers as plain lists: a tensor sent to a process costs a descriptor."""

    def __init__(self, wanted: Sequence[Tensor]) -> None:
        self._wanted = wanted

    def __iter__(self) -> Iterator[list[int]]:
        return (each.tolist() for each in self._wanted)


class _Reader(Dataset[Any]):
    """Reads examples in a process of its own; what is wrong comes back as a text."""

    def __init__(self, source: sources.Source, shape: torch.Size) -> None:
        self._source, self._shape = source, shape

    def __getitem__(self, numbers: list[int]) -> tuple[Tensor, str]:
        try:
            return self.take(numbers), ""
        except InputError as error:
            return torch.zeros(0), str(error)

    def take(self, numbers: Sequence[int]) -> Tensor:
        images = torch.empty(len(numbers), *self._shape, dtype=torch.uint8)
        for at, number in enumerate(numbers):
            image = self._source.read(number)
            if image.shape != self._shape:
                raise InputError(
                    f"example {number}: an image of {tuple(image.shape)} (channels, height, width) "
                    f"among images of {tuple(self._shape)}. Bring all to one size: --image-size."
                )
            images[at] = image
        return images


class StreamSampler:
    """The order of a streamed training set's batches, and the place in it.

    Unlike of a set in memory the last batch is a shorter one, so that each example is shown once an
    epoch. Where ranks cannot share that one evenly, the first examples of the epoch fill it up.

    Attributes:
        batches: Of an epoch.
        epoch, batch: Whole epochs done, batches done in the present one.
        padding: Examples that are shown once more in each epoch.

    Raises:
        InputError: The ranks cannot share a batch evenly.
    """

    def __init__(
        self, train: Streamed, batch_size: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        if batch_size % world:
            raise InputError(
                f"--batch-size {batch_size}: is over all ranks together, and {world} ranks "
                f"cannot share it evenly. Take a multiple of {world}."
            )
        self.batch_size = batch_size
        self.batches = -(-len(train) // batch_size)
        self.padding = -len(train) % world
        self.epoch = self.batch = 0
        self._train, self._seed, self._rank, self._world = train, seed, rank, world

    def order(self) -> Tensor:
        """Return the positions of the present epoch's examples, as they are shown, with padding."""
        numbers, starts = self._train.numbers, torch.tensor(self._train.source.starts)
        edges = [*torch.searchsorted(numbers, starts).tolist(), len(numbers)]
        spans = [(a, b) for a, b in itertools.pairwise(edges) if a < b]
        purpose: tuple[object, ...] = ("epoch", self.epoch)
        if len(spans) <= MIXED:
            order = permute(len(numbers), self._seed, *purpose)
        else:
            mixed = permute(len(spans), self._seed, *purpose, "shards").tolist()
            parts = []
            for first in range(0, len(mixed), MIXED):
                few = [torch.arange(*spans[each]) for each in mixed[first : first + MIXED]]
                together = torch.cat(few)
                draw = permute(len(together), self._seed, *purpose, "mixed", first)
                parts.append(together[draw])
            order = torch.cat(parts)
        repeated = torch.arange(self.padding) % len(order)
        return torch.cat([order, order[repeated]])

    def rest_of_epoch(self, device: torch.device) -> Iterator[Batch]:
        """Yield the batches still to come; ``batch`` counts a batch when it is done."""
        order = self.order()
        own = [
            order[start : start + self.batch_size][self._rank :: self._world]
            for start in range(self.batch * self.batch_size, len(order), self.batch_size)
        ]
        loaded = self._train.load([self._train.numbers[each] for each in own])
        for positions, part in zip(own, loaded, strict=True):
            yield Batch(part.images, part.labels, positions)
            self.batch += 1

    def end_epoch(self) -> None:
        """Move to the start of the next epoch."""
        self.epoch, self.batch = self.epoch + 1, 0


def load(
    options: Options, folder: Path, with_test: bool
) -> tuple[Streamed, Streamed, Streamed | None]:
    """Return the training, validation and (where asked for) test split of shards, images, Parquet.

    Without a validation or test part a tenth of the training set becomes one.

    Raises:
        InputError: They are not there, or cannot be read.
    """
    size = options.image_size
    found: dict[str, Any]
    if options.data == "shards":
        found = sources.find_shards(folder)
        make: Any = lambda paths: sources.Shards(paths, size)  # noqa: E731
    elif options.data == "images":
        found, classes = sources.find_images(folder)
        make = lambda root: sources.Images(root, classes, size)  # noqa: E731
    else:
        found = sources.find_parquet(folder)
        make = lambda paths: sources.Parquet(paths, size, MIXED)  # noqa: E731
    source = make(found["train"])
    shape = source.read(0).shape
    whole = _streamed(source, shape, torch.arange(len(source)), options)
    train, tenth, test = whole, max(1, len(whole) // 10), None
    if "test" not in found or not found["test"]:
        train, test = _cut(train, options.split_seed, tenth)
    if found.get("val"):
        other = make(found["val"])
        validation = _streamed(other, shape, torch.arange(len(other)), options)
    else:
        train, validation = _cut(train, options.split_seed, tenth)
    if found.get("test") and with_test:
        other = make(found["test"])
        test = _streamed(other, shape, torch.arange(len(other)), options)
    return train, validation, test if with_test else None


def _streamed(
    source: sources.Source, shape: torch.Size, numbers: Tensor, options: Options
) -> Streamed:
    return Streamed(source, numbers, shape, torch.device("cpu"), options.workers)


def _cut(whole: Streamed, seed: int, count: int) -> tuple[Streamed, Streamed]:
    """Return two random parts, the second of the given size."""
    order = permute(len(whole), seed, "split")
    first, second = order[: len(whole) - count], order[len(whole) - count :]
    return (
        replace(whole, numbers=whole.numbers[first].sort().values),
        replace(whole, numbers=whole.numbers[second].sort().values),
    )
