"""Pictures as tensors: PNG by the standard library, all others where Pillow is installed."""

from __future__ import annotations

import io

import torch
from torch import Tensor

from . import png
from .failures import InputError

KINDS = ("png", "jpg", "jpeg", "bmp", "webp", "tif", "tiff", "gif", "ppm", "pgm")


def decode(where: str, kind: str, content: bytes, size: int = 0) -> Tensor:
    """Return a picture as channels x height x width of unsigned bytes, with 1 or 3 channels.

    Args:
        where: What a message calls it.
        kind: The extension of its file.
        content: Of its file.
        size: Height and width that it is scaled to (the shorter side) and cut to (the middle);
            0: as it is.

    Raises:
        InputError: It is damaged, of a kind that is not read, or Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError:
        if kind != "png" or size:
            raise InputError(
                f"{where}: needs Pillow to be read or scaled. Install it: pip install pillow"
            ) from None
        try:
            return png.read(content)
        except ValueError as error:
            raise InputError(f"{where}: is {error}.") from None
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if opened.mode.startswith(("I", "F")):
                raise InputError(
                    f"{where}: has {opened.mode} pixels; only those of 8 bits are read."
                )
            grey = opened.mode in ("1", "L", "LA")
            picture = opened.convert("L" if grey else "RGB")
    except InputError:
        raise
    except Exception as error:  # Pillow raises of every kind at damaged bytes
        said = "no picture of a known kind" if "BytesIO" in str(error) else error
        raise InputError(f"{where}: cannot be read ({said}).") from None
    if size and picture.size != (size, size):
        width, height = picture.size
        scale = size / min(width, height)
        wide, high = max(size, round(width * scale)), max(size, round(height * scale))
        left, top = (wide - size) // 2, (high - size) // 2
        picture = picture.resize((wide, high), Image.Resampling.BILINEAR)
        picture = picture.crop((left, top, left + size, top + size))
    wide, high = picture.size
    pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return pixels.view(high, wide, -1).permute(2, 0, 1).contiguous()
