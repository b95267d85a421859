"""Libraries that a task imports without what they bring along and it never uses.

Only for tasks, which have one thread here and show no progress bars: where people type, in
notebooks and in the command line, the libraries come whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def load_psycopg2() -> None:
    """Import psycopg2 without ``ssl``, which takes as long again.

    It imports that, and goes on without, only to set up locks of an OpenSSL older than 1.1.
    """
    if "psycopg2" not in sys.modules:
        with _instead({"ssl": None}):
            import psycopg2  # noqa: F401


def load_optuna() -> None:
    """Import Optuna without tqdm, which brings asyncio, ssl and email for its progress bars."""
    if "optuna" not in sys.modules:
        bars = ModuleType("tqdm.auto")
        bars.tqdm = None  # type: ignore[attr-defined]
        with _instead({"tqdm": ModuleType("tqdm"), "tqdm.auto": bars}):
            import optuna  # noqa: F401


@contextmanager
def _instead(modules: dict[str, ModuleType | None]) -> Iterator[None]:
    """Have others import these; None for one that cannot be. A real one that is there stays."""
    given = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(given)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in given:
            del sys.modules[name]
