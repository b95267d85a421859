"""A part of a data set, and permutations that depend on a seed alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Images (n, channels, height, width) of unsigned bytes, and labels (n,) of 64-bit integers."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

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
