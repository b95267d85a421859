"""The embedded PostgreSQL server: start it, find it, stop it.

One server a user and runs folder, its data in ``runs/.postgres``. It is started by whichever
command needs it first, outlives that command, and is stopped by ``sweep db stop`` or, once nothing
has used it for ten minutes, by its watcher.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .binaries import find_binaries
    from .control import start, stop
    from .server import Server, clients, running, status, using

# Loaded when asked for: a task only looks where the server is, or has a URL and needs none of it.
_HOMES = {
    "find_binaries": "binaries",
    "start": "control",
    "stop": "control",
    "Server": "server",
    "clients": "server",
    "running": "server",
    "status": "server",
    "using": "server",
}

__all__ = ["Server", "clients", "find_binaries", "running", "start", "status", "stop", "using"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
