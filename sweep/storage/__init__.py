"""The Optuna study in PostgreSQL: claim, sample, record, history.

``PostgresStorage`` is an Optuna storage and imports Optuna, so it is loaded when it is asked for.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PostgresStorage"]


def __getattr__(name: str) -> Any:
    if name == "PostgresStorage":
        from sweep.storage.optuna_storage import PostgresStorage

        return PostgresStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
