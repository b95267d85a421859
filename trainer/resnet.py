"""A ResNet for small images: a 3 x 3 stem instead of the 7 x 7 one, and no pooling at the start.

He, Zhang, Ren and Sun 2015, section 4.2, with the widths and the four stages of their ResNet-18
(width 64, two blocks a stage), as is usual for CIFAR-sized images.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .failures import InputError


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut around them."""

    def __init__(self, before: int, after: int, stride: int, norm: str) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            _norm(after, norm),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            _norm(after, norm),
        )
        self.shortcut = (
            nn.Identity()
            if before == after and stride == 1
            else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), _norm(after, norm))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class MeanOfPixels(nn.Module):
    """Each channel's mean: torch's adaptive pooling has no deterministic gradient on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def build(
    channels: int, classes: int, blocks: int, width: int, dropout: float, norm: str
) -> nn.Sequential:
    """Return a ResNet of four stages that halve the image three times.

    Args:
        channels: Of the images.
        classes: Outputs.
        blocks: Blocks of each stage; 2 makes a ResNet-18.
        width: Channels of the first stage, doubled by each of the others; 0: 64.
        dropout: Before the last layer.
        norm: ``batch``, or ``group`` (groups of about 16 channels; Wu and He 2018).

    Raises:
        InputError: The width is no multiple of 8.
    """
    width = width or 64
    if width % 8:
        # Tensor cores want it, and on a CPU torch 2.13 damages its memory in the gradient of a
        # 1 x 1 convolution of stride 2 from 4 to 8 channels in channels-last layout.
        raise InputError(f"--width {width}: of a resnet must be a multiple of 8.")
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        _norm(width, norm),
        nn.ReLU(),
    ]
    before = width
    for stage in range(4):
        after = width << stage
        for number in range(blocks):
            stride = 2 if stage and number == 0 else 1
            layers.append(Block(before, after, stride, norm))
            before = after
    last = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, MeanOfPixels(), *last, nn.Linear(before, classes))


def _norm(channels: int, norm: str) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    groups = max(1, channels // 16)
    return nn.GroupNorm(groups if channels % groups == 0 else 1, channels)
