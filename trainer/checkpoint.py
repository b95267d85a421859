"""Checkpoints that survive a kill at any moment: whole and verified, or not there.

A file is written under a temporary name, synced, and renamed to a name that carries the start of
its SHA-256 (one file instead of two: users have inode quotas). Two are kept, so that one that was
damaged later leaves another to fall back on.

Names: ``epoch-0003-<16 hex digits>.pt`` after three epochs, ``epoch-0003.000120-….pt`` 120 batches
later; they sort by age. Where several processes divide the weights it is a folder that all of them
write, ``epoch-0003-sharded`` (see ``sharded``).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import sharded

KEPT = 2
_NAME = re.compile(r"epoch-(\d{4})(?:\.(\d{6}))?-(?:([0-9a-f]{16})\.pt|sharded)")


class Unreadable(Exception):
    """A checkpoint is missing, damaged, or holds more than plain data."""


def save(folder: Path, state: dict[str, Any], epoch: int, batch: int = 0) -> Path:
    """Write a checkpoint and remove all but the newest two.

    Args:
        folder: One run's own folder; made if missing.
        state: Tensors and plain values, nested.
        epoch: Whole epochs done.
        batch: Batches done since.

    Raises:
        OSError: It could not be written (a full disk); the earlier ones are untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".*.tmp"):  # what a killed predecessor was writing
        left.unlink()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    place = name_place(epoch, batch)
    target = folder / f"{place}-{hashlib.sha256(content).hexdigest()[:16]}.pt"
    part = folder / f".{place}.{os.getpid()}.tmp"
    try:
        with open(part, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
    _sync(folder)
    remove_old(folder)
    return target


def name_place(epoch: int, batch: int) -> str:
    """Return how the name of a checkpoint begins."""
    return f"epoch-{epoch:04d}" + (f".{batch:06d}" if batch else "")


def remove_old(folder: Path) -> None:
    """Remove all checkpoints of a folder but the newest two."""
    for old in find(folder)[KEPT:]:
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()


def _sync(folder: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, newest first."""
    found = []
    for path in folder.glob("epoch-*"):
        if match := _NAME.fullmatch(path.name):
            found.append((int(match[1]), int(match[2] or 0), path.stat().st_mtime_ns, path))
    return [path for *_, path in sorted(found, reverse=True)]


def load(path: Path, *, whole: bool = True) -> dict[str, Any]:
    """Return a checkpoint's state, on the CPU, after comparing the file with its name.

    A file under another name (one that a user renamed) is loaded without that comparison.

    Args:
        whole: Also the weights and the optimiser's state of a sharded one.

    Raises:
        Unreadable: Says why.
    """
    if path.is_dir():
        return _load_sharded(path, whole)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    named = _NAME.fullmatch(path.name)
    if named and hashlib.sha256(content).hexdigest()[:16] != named[3]:
        raise Unreadable(f"{path}: damaged (its content does not match its name)")
    try:
        # weights_only: a planted file must not be able to run code.
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for one damaged file
        reason = str(error).strip().split("\n")[0][:200]
        raise Unreadable(f"{path}: cannot be loaded ({reason})") from None
    if not isinstance(state, dict):
        raise Unreadable(f"{path}: holds no training state")
    return state


def _load_sharded(path: Path, whole: bool) -> dict[str, Any]:
    if not sharded.is_whole(path):
        raise Unreadable(f"{path}: is not whole (no {sharded.METADATA})")
    try:
        return sharded.load(path) if whole else sharded.load_run(path)
    except Exception as error:  # torch raises many kinds for one damaged file
        reason = str(error).strip().split("\n")[0][:200]
        raise Unreadable(f"{path}: cannot be loaded ({reason})") from None


def load_newest(
    path: Path, say: Callable[[str], object] = print, *, whole: bool = True
) -> tuple[dict[str, Any], Path] | None:
    """Return the state of a checkpoint, or of the next older one beside it where that is damaged.

    Args:
        path: A checkpoint, or a folder (then its newest).
        say: Gets a line for each one that cannot be used.
        whole: As for ``load``.

    Returns:
        The state and the file that it came from; None where none can be read.
    """
    if path.is_dir() and not _NAME.fullmatch(path.name):
        candidates = find(path)
    else:
        beside = find(path.parent)
        older = beside[beside.index(path) + 1 :] if path in beside else beside
        candidates = [path, *older]
    for candidate in candidates:
        try:
            return load(candidate, whole=whole), candidate
        except Unreadable as error:
            say(f"checkpoint not used: {error}")
    return None


def random_states() -> dict[str, Any]:
    """Return the states of all random sources that training may draw from, as plain data."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if numpy := sys.modules.get("numpy"):
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = [kind, keys.tolist(), *rest]
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Set the random sources back to recorded states; those of other hardware are left out."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])
    if "numpy" in states and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(tuple(states["numpy"]))
