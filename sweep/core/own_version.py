"""Which sweep this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """Return sweep's version, or that there is none: a checkout on PYTHONPATH has no metadata."""
    try:
        return version("sweep-hpo")
    except PackageNotFoundError:
        return "not installed (run from a checkout)"
