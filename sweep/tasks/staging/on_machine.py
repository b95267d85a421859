"""What copies of data this machine has, for people and programs; nothing is made."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError
from sweep.core.system.own_folder import own_path
from sweep.tasks.staging.cache import Cache, KeptCopy
from sweep.tasks.staging.places import find_spots


@dataclass(frozen=True)
class Here:
    """A place of this machine, and the copies in it, the longest unused first.

    Attributes:
        cache: None where no copy was ever kept.
    """

    folder: Path
    private: str
    is_memory: bool
    free_bytes: int
    entries: Sequence[KeptCopy]
    cache: Cache | None

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data, for programs."""
        return {
            "place": str(self.folder),
            "private": self.private,
            "in_memory": self.is_memory,
            "free_bytes": self.free_bytes,
            "copies": [dataclasses.asdict(entry) for entry in self.entries],
        }


@dataclass(frozen=True)
class Overview:
    """The places that will do, and in sentences why others do not."""

    places: Sequence[Here]
    others: Sequence[str]


def look(named: str | None, environ: Mapping[str, str]) -> Overview:
    """Return what this machine has; ``named`` is a place to look in, as ``staging.place`` is."""
    nowhere = Path("/nonexistent")  # on whose disk no data lie
    spots, others = find_spots(named, environ, nowhere)
    found = []
    for spot in spots:
        disk = os.statvfs(spot.folder)
        cache: Cache | None = None
        if os.path.lexists(own_path("data", spot.folder)):
            try:
                cache = Cache(spot.folder)
            except SweepError as error:
                others.append(error.message)
                continue
        found.append(
            Here(
                spot.folder,
                spot.private,
                spot.is_memory,
                disk.f_bavail * disk.f_frsize,
                cache.entries() if cache else (),
                cache,
            )
        )
    return Overview(found, others)
