"""The lease: the right to serve a data folder from a job, kept in a file there and renewed."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.core.files import write_atomic

LEASE = "lease"
PERIOD_S = 10.0
PERIODS = 3


class LeaseLost(SweepError):
    """Another server has taken the data folder over, or the lease cannot be renewed."""


class Lease:
    """The right to serve a data folder, kept in a file there.

    Ages are differences of times that the same file system gave, so clocks of hosts do not matter.
    """

    def __init__(self, data_dir: Path, period_s: float = PERIOD_S) -> None:
        self.path = data_dir / LEASE
        self.period_s = period_s
        self.token = secrets.token_hex(8)

    def age_s(self) -> float | None:
        """Return how long ago the lease was renewed, or None where there is none."""
        try:
            renewed = self.path.stat().st_mtime
        except FileNotFoundError:
            return None
        probe = self.path.with_name(f".{LEASE}.{self.token}")
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
        return now - renewed

    def is_free(self) -> bool:
        """Tell whether nobody has renewed it for three periods."""
        age_s = self.age_s()
        return age_s is None or age_s > PERIODS * self.period_s

    def take(self) -> None:
        write_atomic(self.path, self.token)

    def renew(self) -> None:
        """Renew it. Raises: LeaseLost: Somebody else took it, or the folder cannot be written."""
        try:
            if self.path.read_text() != self.token:
                raise LeaseLost("Another server has taken over the data folder.")
            write_atomic(self.path, self.token)
        except OSError as error:
            raise LeaseLost(f"The lease cannot be renewed: {error}.") from error

    def is_mine(self) -> bool:
        try:
            return self.path.read_text() == self.token
        except OSError:
            return False

    def give_up(self) -> None:
        if self.is_mine():
            with contextlib.suppress(OSError):
                self.path.unlink()
