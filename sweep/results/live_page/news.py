"""What a page shows, part by part with the version at which each has changed last."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.results.page.html import as_script

# A browser that has been away since an earlier server asks with a version of that one's.
ANY = 0


@dataclass
class News:
    """What browsers have to be told, for each what has changed since they asked last.

    Safe for several threads.

    Attributes:
        version: Grows by one whenever something has changed.
    """

    version: int = ANY
    _kept: dict[tuple[str, str], tuple[int, bytes, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, kind: str, items: Mapping[str, Any], *, whole: bool = False) -> None:
        """Take in items of a kind; only what differs from before counts as new.

        Args:
            whole: There are no others of this kind: those that are not named are gone.
        """
        with self._lock:
            later = self.version + 1
            changed = False
            gone = {key[1] for key in self._kept if key[0] == kind} - items.keys() if whole else ()
            for name, value in {**items, **dict.fromkeys(gone)}.items():
                digest = hashlib.sha256(as_script(value).encode()).digest()
                before = self._kept.get((kind, name))
                if before is None or before[1] != digest:
                    self._kept[kind, name] = (later, digest, value)
                    changed = True
            if changed:
                self.version = later

    def since(self, version: int) -> dict[str, Any] | None:
        """Return what is new since a version, by kind and name; None where nothing is."""
        with self._lock:
            if version == self.version:
                return None
            after = ANY if version > self.version else version
            found: dict[str, Any] = {"version": self.version}
            for (kind, name), (when, _, value) in self._kept.items():
                if when > after:
                    found.setdefault(kind, {})[name] = value
            return found
