"""Random shifts and mirrorings of training images, on the device, without waiting for it.

What happens to an example is drawn for the whole epoch at once, as a function of (seed, epoch,
example): so it is the same on any number of ranks, on any device, and after a resume, and no random
state has to be saved for it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .split import source_of


class Augmentation:
    """Takes batches out of a set of images, each image shifted and perhaps mirrored.

    Args:
        images: (n, channels, height, width) of bytes; a padded copy of them is kept.
        flip: Mirror half of the images as well.
        seed: The run's seed.
        padding: Pixels that an image is shifted by at most, in each direction.
        count: Examples of the set, where the images are only what is shown of it at a time.
    """

    def __init__(
        self, images: Tensor, flip: bool, seed: int, padding: int, count: int | None = None
    ) -> None:
        self._padding = padding
        self._padded = functional.pad(images, [padding] * 4)
        self._flip, self._seed, self._choices = flip, seed, 2 * padding + 1
        device = images.device
        _, channels, height, width = images.shape
        self._channels = torch.arange(channels, device=device)[None, :, None, None]
        self._rows = torch.arange(height, device=device)[None, :]
        self._columns = torch.arange(width, device=device)[None, :]
        self._drawn = torch.zeros(3, len(images), dtype=torch.int64, device=device)
        self._of_all = None if count is None else torch.zeros(3, count, dtype=torch.int64)

    def begin_epoch(self, epoch: int) -> None:
        """Draw what will happen to each example, in place: a captured step sees the new values."""
        source = source_of(self._seed, "augment", epoch)
        target = self._drawn if self._of_all is None else self._of_all
        count = target.shape[1]
        drawn = torch.stack(
            [
                torch.randint(self._choices, (count,), generator=source),
                torch.randint(self._choices, (count,), generator=source),
                torch.randint(2, (count,), generator=source) * int(self._flip),
            ]
        )
        target.copy_(drawn)

    def show(self, images: Tensor, positions: Tensor) -> None:
        """Make these the images of which batches are taken; positions are theirs in the set."""
        count, edge = len(images), self._padding
        assert self._of_all is not None
        self._padded[:count, :, edge:-edge, edge:-edge].copy_(images, non_blocking=True)
        self._drawn[:, :count].copy_(self._of_all[:, positions])

    def take(self, index: Tensor) -> Tensor:
        """Return the images of a batch (its indices), changed."""
        down, right, mirrored = self._drawn[:, index].unsqueeze(2)
        rows = self._rows + down
        width = self._columns.shape[1]
        columns = torch.where(mirrored > 0, width - 1 - self._columns, self._columns) + right
        return self._padded[
            index[:, None, None, None],
            self._channels,
            rows[:, None, :, None],
            columns[:, None, None, :],
        ]


def build(kind: str, images: Tensor, seed: int, count: int | None = None) -> Augmentation | None:
    """Return the augmentation that ``--augment`` names; None for ``none``."""
    if kind == "none":
        return None
    # 4 of 32 pixels is what He et al. (2015) used on CIFAR-10; smaller images bear less.
    pixels = images.shape[-1]
    padding = 4 if pixels >= 32 else 2 if pixels >= 16 else 1
    return Augmentation(images, kind == "crop-flip", seed, padding, count)
