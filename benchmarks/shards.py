"""How fast examples are read from shards, against a folder of files, by the trainer's own reader.

    python -m benchmarks.shards [--examples 20000] [--bytes 8000] [--workers 2] [--folder DIR]

A folder of .npy files is written and packed by ``sweep data shard``; then an epoch of each is
read in the order of a training, at first with both dropped from this machine's cache. Both orders
are random: of all files, and of eight shards at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch

from sweep.tasks.sharding import shards, source_kinds
from trainer import sources, stream


class Files(sources.Source):
    """The .npy files of a folder, one open and one read each."""

    def __init__(self, root: Path) -> None:
        self.paths = sorted(root.rglob("*.npy"))
        self.labels = torch.tensor([int(path.parent.name) for path in self.paths])
        self.starts = [0]

    def read(self, number: int) -> torch.Tensor:
        """Return an image."""
        pixels = torch.from_numpy(numpy.load(self.paths[number]))
        return pixels[:, :, None].permute(2, 0, 1)


def drop_from_cache(folder: Path) -> None:
    """Have this machine forget what it has read of some files."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_epoch(source: sources.Source, workers: int) -> float:
    """Return examples a second over one epoch."""
    shape = source.read(0).shape
    numbers = torch.arange(len(source))
    part = stream.Streamed(source, numbers, shape, torch.device("cpu"), workers)
    sampler = stream.StreamSampler(part, 64, 0)
    began = time.monotonic()
    count = sum(len(batch) for batch in batches(sampler))
    assert count == len(source)
    return count / (time.monotonic() - began)


def batches(sampler: stream.StreamSampler) -> Iterator[stream.Batch]:
    """Yield the batches of an epoch."""
    return sampler.rest_of_epoch(torch.device("cpu"))


def main(argv: list[str] | None = None) -> int:
    """Print the rates as JSON."""
    parser = argparse.ArgumentParser(description="Shards against a folder of files.")
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=8_000, help="of an example")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="on the file system that is measured")
    parser.add_argument("--size", type=int, default=16, help="MiB of a shard")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        side = max(1, int(given.bytes**0.5))
        draw = numpy.random.default_rng(0)
        for number in range(given.examples):
            path = folder / "files" / str(number % 10) / f"{number}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            numpy.save(path, draw.integers(0, 256, (side, side), dtype="u1"))
        found = source_kinds.read_source(folder / "files")
        began = time.monotonic()
        packed = shards.pack(found, folder / "shards", given.size << 20, lambda text: None)
        result: dict[str, object] = {
            "examples": given.examples,
            "bytes": packed.bytes,
            "shards": packed.shards,
            "workers": given.workers,
            "packed_per_s": round(given.examples / (time.monotonic() - began)),
        }
        for kind in ("files", "shards"):
            for state in ("cold", "warm"):
                if state == "cold":
                    drop_from_cache(folder / kind)
                source = (
                    Files(folder / kind)
                    if kind == "files"
                    else sources.Shards(sources.find_shards(folder / kind)["train"])
                )
                result[f"{kind}_{state}_per_s"] = round(read_epoch(source, given.workers))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
