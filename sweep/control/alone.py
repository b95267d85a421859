"""Keeping launches and finalisers away from a study while a command changes it as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sweep.control import waves
from sweep.core.errors import BusyError
from sweep.core.files import locked, make_private
from sweep.core.paths import Runs

SUBMITTER_WAIT_S = 5.0


@contextlib.contextmanager
def keep_launches_away(runs: Runs, name: str, url: str | None) -> Iterator[None]:
    """Keep launches and finalisers of a study away.

    Args:
        url: Its database's address; None where there is none (any more).

    Raises:
        BusyError: One is at work.
    """
    make_private(runs.root)
    with locked(runs.root / f".{name}.lock", wait=False) as got:
        if not got:
            raise BusyError(f"A launch of the study {name!r} is at work.", "Wait for it to end.")
        if url is None:
            yield
            return
        with waves.one_submitter(url, name, wait_s=SUBMITTER_WAIT_S):
            yield
