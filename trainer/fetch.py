"""Download the IDX files of MNIST and Fashion-MNIST, check them, and say what to do offline.

python -m trainer.data fetch mnist [--to DIR] [--from DIR_OR_URL]
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import os
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .config import InputError

# Mirrors pack the same content with different gzip settings, so MNIST's digests are SHA-256 of the
# unpacked content. Fashion-MNIST's are the MD5 of the packed files that its authors publish
# (https://github.com/zalandoresearch/fashion-mnist).
_CONTENT, _PACKED = "sha256 of the content", "md5 of the file"
DIGESTS = {
    "mnist": (
        _CONTENT,
        {
            "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",  # noqa: E501
            "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",  # noqa: E501
            "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",  # noqa: E501
            "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",  # noqa: E501
        },
    ),
    "fashion-mnist": (
        _PACKED,
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
}
MIRRORS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
}
# A mirror that says nothing for this long is given up and the next one asked.
SILENCE_LIMIT_S = 30


class Damaged(Exception):
    """What arrived is not the published file."""


def check(name: str, file: str, packed: bytes) -> None:
    """Compare a file's bytes with the published digest.

    Raises:
        Damaged: They differ, or the bytes cannot be unpacked.
    """
    kind, digests = DIGESTS[name]
    if kind == _CONTENT:
        try:
            got = hashlib.sha256(gzip.decompress(packed)).hexdigest()
        except (OSError, EOFError, zlib.error) as error:
            raise Damaged(f"cannot be unpacked ({error})") from None
    else:
        got = hashlib.md5(packed, usedforsecurity=False).hexdigest()
    if got != digests[file]:
        raise Damaged(f"wrong checksum ({kind}: {got[:12]}…, expected {digests[file][:12]}…)")


def identify(path: Path) -> str | None:
    """Return the data set that a file belongs to, or None for one that was never published."""
    packed = path.read_bytes()
    for name in DIGESTS:
        try:
            check(name, path.name, packed)
        except (Damaged, KeyError):
            continue
        return name
    return None


def offline_advice(name: str, folder: Path) -> str:
    """Return what to copy where on a machine without network."""
    files = ", ".join(DIGESTS[name][1])
    return (
        f"Without network: on a machine that has it, download {files} "
        f"from {MIRRORS[name][0]} and copy the four files into {folder.absolute()}."
    )


def fetch(
    name: str, folder: Path, sources: tuple[str, ...], say: Callable[[str], object] = print
) -> None:
    """Bring the four files of a data set into a folder, each whole and checked, or not at all.

    Files that are there and right are left alone; a wrong one is replaced.

    Args:
        name: ``mnist`` or ``fashion-mnist``.
        folder: Where they go; made if missing.
        sources: Folders or http(s) addresses, tried in this order for each file.
        say: Gets one line a file.

    Raises:
        InputError: No source has a good copy; says what each one did and what to do offline.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(".*.part"):  # what a killed fetch left
            part.unlink()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written to ({error.strerror}).") from None
    for file in DIGESTS[name][1]:
        target = folder / file
        if target.is_file():
            try:
                check(name, file, target.read_bytes())
            except Damaged as damage:
                say(f"{target}: {damage}; getting it again")
            else:
                say(f"{target}: there and right")
                continue
        failures = []
        for source in sources:
            try:
                packed = _read(source, file)
                check(name, file, packed)
                _place(packed, target)
            except (Damaged, OSError, ValueError) as error:
                failures.append(f"  {source}: {_reason(error)}")
                continue
            say(f"{target}: {len(packed) / 1e6:.1f} MB from {source}")
            break
        else:
            raise InputError(
                f"Could not get {file} of {name}:\n"
                + "\n".join(failures)
                + "\n"
                + offline_advice(name, folder)
            )


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection ({getattr(error.reason, 'strerror', None) or error.reason})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _read(source: str, file: str) -> bytes:
    if source.startswith(("http://", "https://")):
        address = source.rstrip("/") + "/" + file
        with urllib.request.urlopen(address, timeout=SILENCE_LIMIT_S) as got:
            size = int(got.headers.get("Content-Length") or 0)
            packed = _receive(got, size, file)
        if size and len(packed) != size:
            raise Damaged(f"the download ended after {len(packed)} of {size} bytes")
        return packed
    with open(Path(source) / file, "rb") as stream:
        return stream.read()


def _receive(stream: IO[bytes], size: int, file: str) -> bytes:
    """Return all bytes of a stream, with a moving line on a terminal."""
    packed = bytearray()
    shown = sys.stderr.isatty()
    while block := stream.read(1 << 16):
        packed += block
        if shown:
            of = f" of {size / 1e6:.1f}" if size else ""
            print(f"\r{file}: {len(packed) / 1e6:.1f}{of} MB", end="", file=sys.stderr, flush=True)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return bytes(packed)


def _place(packed: bytes, target: Path) -> None:
    """Write a file under a temporary name, then rename it: never half there under its own name."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as stream:
            stream.write(packed)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def main(argv: list[str]) -> int:
    """Run ``python -m trainer.data``; return its exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.data",
        description="Get the files of a data set.",
        epilog=f"example: python -m {__package__}.data fetch mnist --from /mnt/usb/mnist",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="fetch")
    command = commands.add_parser("fetch", help="download the four IDX files, checked")
    command.add_argument("name", choices=sorted(DIGESTS))
    command.add_argument(
        "--to",
        metavar="DIR",
        type=Path,
        help="where to put them (default: $SWEEP_DATA/NAME, else ./data/NAME)",
    )
    command.add_argument(
        "--from",
        dest="source",
        metavar="DIR_OR_URL",
        help="a folder or an address that holds the four files (default: the known mirrors)",
    )
    given = parser.parse_args(argv)
    folder = given.to or Path(os.environ.get("SWEEP_DATA") or "data") / given.name
    sources = (given.source,) if given.source else MIRRORS[given.name]
    try:
        fetch(given.name, folder, sources)
    except InputError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ntrainer: interrupted; the files got so far are whole.", file=sys.stderr)
        return 130
    return 0
