"""PNG pictures with the standard library: what shards hold, and what a confusion matrix becomes.

The format: https://www.w3.org/TR/png-3/. Read are 8-bit pictures that are not interlaced: grey or
RGB, with or without alpha (which is dropped), and palettes; what image sets consist of.
"""

from __future__ import annotations

import struct
import zlib

import torch
from torch import Tensor

_START = b"\x89PNG\r\n\x1a\n"
# Colour type: bytes a pixel as stored, channels that count.
_KINDS = {0: (1, 1), 2: (3, 3), 3: (1, 3), 4: (2, 1), 6: (4, 3)}


def write(pixels: Tensor) -> bytes:
    """Return an RGB picture, height x width x 3 of unsigned bytes, as the content of a PNG file."""
    height, width, _ = pixels.shape
    rows = bytes(pixels.contiguous().flatten().tolist())
    size = 3 * width
    raw = b"".join(b"\0" + rows[at : at + size] for at in range(0, height * size, size))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return _START + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(raw)) + _chunk(b"IEND")


def _chunk(kind: bytes, content: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def read(content: bytes) -> Tensor:
    """Return a picture as channels x height x width of unsigned bytes, with 1 or 3 channels.

    Raises:
        ValueError: It is no PNG file, is damaged, or of a kind that is not read; says which.
    """
    if not content.startswith(_START):
        raise ValueError("not a PNG file")
    data, palette, head, at = bytearray(), b"", b"", len(_START)
    while at + 12 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, at)
        part = content[at + 8 : at + 8 + size]
        given = content[at + 8 + size : at + 12 + size]
        if given != struct.pack(">I", zlib.crc32(kind + part)):
            raise ValueError("a damaged PNG file")
        if kind == b"IHDR":
            head = part
        elif kind == b"PLTE":
            palette = part
        elif kind == b"IDAT":
            data += part
        at += 12 + size
    if len(head) != 13:
        raise ValueError("a damaged PNG file")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    if depth != 8 or colour not in _KINDS or interlaced:
        raise ValueError("a PNG file of a kind that is not read (8 bits, not interlaced, is)")
    stored, channels = _KINDS[colour]
    try:
        rows = _unfilter(zlib.decompress(bytes(data)), height, width * stored, stored)
    except (zlib.error, IndexError):
        raise ValueError("a damaged PNG file") from None
    pixels = torch.frombuffer(rows, dtype=torch.uint8).view(height, width, stored)
    if colour == 3:
        colours = torch.frombuffer(bytearray(palette), dtype=torch.uint8).view(-1, 3)
        if int(pixels.max()) >= len(colours):
            raise ValueError("a damaged PNG file")
        pixels = colours[pixels[:, :, 0].long()]
    return pixels[:, :, :channels].permute(2, 0, 1).contiguous()


def _unfilter(raw: bytes, height: int, size: int, step: int) -> bytearray:
    """Undo the filter of each row (section 9 of the standard); rows are ``size`` bytes."""
    before, out = bytearray(size), bytearray()
    for number in range(height):
        start = number * (size + 1)
        kind, row = raw[start], bytearray(raw[start + 1 : start + 1 + size])
        for at in range(size) if kind else ():
            left = row[at - step] if at >= step else 0
            corner = before[at - step] if at >= step else 0
            add = (left, before[at], (left + before[at]) // 2, _paeth(left, before[at], corner))[
                kind - 1
            ]
            row[at] = (row[at] + add) & 255
        out += row
        before = row
    return out


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min(
        (abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner)
    )[2]
