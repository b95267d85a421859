"""Libraries that a task imports without what they bring along and it never uses.

Only for tasks, which have one thread here and show no progress bars: where people type, in
notebooks and in the command line, the libraries come whole.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

# NumPy's BLAS starts a thread for each core as soon as it is imported. What a task computes is
# small, and training runs beside it.
_BLAS_VARIABLE = "OPENBLAS_NUM_THREADS"


def load_psycopg2() -> None:
    """Import psycopg2 without ``ssl``, which takes as long again.

    It imports that, and goes on without, only to set up locks of an OpenSSL older than 1.1.
    """
    if "psycopg2" not in sys.modules:
        with _instead({"ssl": None}):
            import psycopg2  # noqa: F401


def load_optuna() -> None:
    """Import Optuna without tqdm, which brings asyncio, ssl and email for its progress bars, and
    NumPy with one thread."""
    if "optuna" not in sys.modules:
        bars = ModuleType("tqdm.auto")
        bars.tqdm = None  # type: ignore[attr-defined]
        given = os.environ.get(_BLAS_VARIABLE)
        os.environ[_BLAS_VARIABLE] = "1"
        try:
            with _instead({"tqdm": ModuleType("tqdm"), "tqdm.auto": bars}):
                import optuna  # noqa: F401
        finally:
            if given is None:
                del os.environ[_BLAS_VARIABLE]
            else:
                os.environ[_BLAS_VARIABLE] = given


@contextmanager
def _instead(modules: dict[str, ModuleType | None]) -> Iterator[None]:
    """Have others import these; None for one that cannot be. A real one that is there stays."""
    given = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(given)  # type: ignore[arg-type]
    try:
        with without_gc():
            yield
    finally:
        for name in given:
            del sys.modules[name]


@contextmanager
def without_gc() -> Iterator[None]:
    """Look for no garbage where nothing becomes any: looking takes a fifth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
