"""Small data sets, and shards read by nothing of sweep's."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from sweep.tasks.sharding import shards, source_kinds
from sweep.tasks.sharding.shards import PackedExamples


def picture(number: int, pixels: int = 4) -> bytes:
    """Return a PNG file of its own for each number."""
    from PIL import Image

    drawn = Image.new("RGB", (pixels, pixels), (number % 256, number // 256 % 256, number // 65536))
    written = io.BytesIO()
    drawn.save(written, "png")
    return written.getvalue()


def write_pictures(folder: Path, count: int, classes: tuple[str, ...] = ("cat", "dog")) -> None:
    """Write pictures into a folder for each class, in turn."""
    for number in range(count):
        path = folder / classes[number % len(classes)] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))


def pack(source: Path, target: Path, size: int = 1 << 20, **more: Any) -> PackedExamples:
    """Make shards as the command does."""
    keys = ("labels", "seed", "ignore", "label_column", "leave_out")
    found = source_kinds.read_source(source, **{key: more.pop(key) for key in keys if key in more})
    return shards.pack(found, target, size, lambda text: None, **more)


def read_shards(folder: Path, split: str = "train") -> list[dict[str, bytes]]:
    """Return {extension: content} of each example, in order."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.glob(f"{split}-*.tar")):
        with tarfile.open(path) as opened:
            for member in opened:
                stream = opened.extractfile(member)
                assert stream is not None
                key, _, extension = member.name.partition(".")
                found.setdefault(key, {})[extension] = stream.read()
    return list(found.values())
