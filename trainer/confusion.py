"""A confusion matrix as a picture, drawn without any plotting package: compute nodes have none."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from . import png

# Digits of 3 x 5 dots: five rows of three bits each.
_DOTS = {
    "0": (7, 5, 5, 5, 7),
    "1": (2, 6, 2, 2, 7),
    "2": (7, 1, 7, 4, 7),
    "3": (7, 1, 7, 1, 7),
    "4": (5, 5, 7, 1, 1),
    "5": (7, 4, 7, 1, 7),
    "6": (7, 4, 7, 5, 7),
    "7": (7, 1, 1, 1, 1),
    "8": (7, 5, 7, 5, 7),
    "9": (7, 5, 7, 1, 7),
}
# Pixels of a cell, and of one dot of a digit.
_CELL, _DOT = 48, 2
_BLUE = torch.tensor([8.0, 48.0, 107.0])


def draw(table: list[list[int]], path: Path) -> None:
    """Write a confusion matrix as a PNG: a row's shares as shades of blue, its counts as numbers.

    Rows are true classes, columns what the network said; both are numbered at the edge, from 0.

    Args:
        table: Counts; as many rows as columns.
        path: The file.

    Raises:
        OSError: It cannot be written.
    """
    classes = len(table)
    picture = torch.full(((classes + 1) * _CELL, (classes + 1) * _CELL, 3), 255, dtype=torch.uint8)
    for row, counts in enumerate(table):
        for column in (row, -1):  # the number of the class: above its column, left of its row
            down, right = (row + 1, 0) if column < 0 else (0, row + 1)
            _write_number(picture, row, down, right, 90)
        total = max(1, sum(counts))
        for column, count in enumerate(counts):
            share = count / total
            cell = picture[
                (row + 1) * _CELL : (row + 2) * _CELL, (column + 1) * _CELL : (column + 2) * _CELL
            ]
            cell[1:, 1:] = (255 - share * (255 - _BLUE)).to(torch.uint8)
            if count:
                _write_number(picture, count, row + 1, column + 1, 255 if share > 0.5 else 0)
    path.write_bytes(png.write(picture))


def _write_number(picture: Tensor, number: int, row: int, column: int, shade: int) -> None:
    """Write a number into the middle of a cell; one too long for it is left out."""
    text = str(number)
    width = (4 * len(text) - 1) * _DOT
    if width > _CELL:
        return
    top = row * _CELL + (_CELL - 5 * _DOT) // 2
    left = column * _CELL + (_CELL - width) // 2
    for place, digit in enumerate(text):
        for down, bits in enumerate(_DOTS[digit]):
            for right in range(3):
                if bits >> (2 - right) & 1:
                    y, x = top + down * _DOT, left + (4 * place + right) * _DOT
                    picture[y : y + _DOT, x : x + _DOT] = shade
