"""A part of a data set, and permutations that depend on a seed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .failures import InputError


@dataclass(frozen=True)
class Split:
    """Images (n, channels, height, width) of unsigned bytes, and labels (n,) of 64-bit integers."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> torch.Size:
        """Channels, height and width of an image."""
        return self.images.shape[1:]

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def parts(self, rank: int, world: int, at_once: int) -> Iterator[Split]:
        """Yield a rank's share, every world-th example, in parts; as many for all ranks."""
        images, labels = self.images[rank::world], self.labels[rank::world]
        for start in range(0, -(-len(self) // world), at_once):
            yield Split(images[start : start + at_once], labels[start : start + at_once])

    def take(self, index: Tensor) -> Split:
        return Split(self.images[index], self.labels[index])

    def to(self, device: torch.device) -> Split:
        return Split(self.images.to(device), self.labels.to(device))


def source_of(seed: int, *purpose: object) -> torch.Generator:
    """Return a random source that depends on the seed and the purpose, not on global state."""
    text = ":".join(str(each) for each in (seed, *purpose))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    return torch.Generator().manual_seed(number)


def permute(count: int, seed: int, *purpose: object) -> Tensor:
    """Return a permutation that depends on the seed and the purpose alone."""
    return torch.randperm(count, generator=source_of(seed, *purpose))


def cut(whole: Split, seed: int, train: int, validation: int) -> tuple[Split, Split, Split]:
    """Return three random parts: of the two given sizes, and the rest."""
    order = permute(len(whole), seed, "split")
    parts = order[:train], order[train : train + validation], order[train + validation :]
    first, second, third = (whole.take(part) for part in parts)
    return first, second, third


class Sampler:
    """The order of training batches: a new permutation each epoch, the last short batch left out.

    The permutation is a function of (seed, epoch), so the place in the order is just the two
    numbers ``epoch`` (whole epochs done) and ``batch`` (batches done in the present one).

    Args:
        count: Training examples.
        batch_size: Examples of one step, over all ranks together.
        seed: The run's seed.
        rank, world: This process's part of each batch: every world-th example of it.

    Raises:
        InputError: The ranks cannot share a batch evenly.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        # A set smaller than one batch makes one batch of all of it.
        self.batch_size = min(batch_size, count)
        if self.batch_size % world:
            raise InputError(
                f"--batch-size {self.batch_size}: is over all ranks together, and {world} ranks "
                f"cannot share it evenly. Take a multiple of {world}."
            )
        self.batches = count // self.batch_size
        self.epoch = 0
        self.batch = 0
        self._count, self._seed, self._rank, self._world = count, seed, rank, world

    def rest_of_epoch(self, device: torch.device) -> Iterator[Tensor]:
        """Yield the indices of the batches still to come; ``batch`` counts a batch when done.

        The whole order goes to the device in one transfer, so that no step waits for a copy.
        """
        order = permute(self._count, self._seed, "epoch", self.epoch).to(device)
        while self.batch < self.batches:
            start = self.batch * self.batch_size
            yield order[start + self._rank : start + self.batch_size : self._world]
            self.batch += 1

    def end_epoch(self) -> None:
        """Move to the start of the next epoch."""
        self.epoch, self.batch = self.epoch + 1, 0
