"""Made-up images of any size and number: learnable, and a function of their options alone."""

from __future__ import annotations

import torch

from .split import Split

CLASSES = 10


def make(count: int, seed: int, channels: int = 1, pixels: int = 28) -> Split:
    """Return noisy copies of ten random patterns.

    Args:
        count: Examples.
        seed: Of patterns, labels and noise.
        channels, pixels: Shape of an image: channels x pixels x pixels.
    """
    source = torch.Generator().manual_seed(seed)
    patterns = torch.randn(CLASSES, channels, pixels, pixels, generator=source)
    labels = torch.randint(CLASSES, (count,), generator=source)
    images = torch.empty(count, channels, pixels, pixels, dtype=torch.uint8)
    for start in range(0, count, 10000):  # in parts: floats need four times the memory
        part = labels[start : start + 10000]
        noise = torch.randn(len(part), channels, pixels, pixels, generator=source)
        values = 128 + 64 * (0.15 * patterns[part] + noise)
        images[start : start + 10000] = values.clamp(0, 255).to(torch.uint8)
    return Split(images, labels)
