"""The embedded PostgreSQL server: start it, find it, stop it.

One server a user and runs folder, its data in ``runs/.postgres``. It is started by whichever
command needs it first, outlives that command, and is stopped by ``sweep db stop`` or, once nothing
has used it for ten minutes, by its watcher.
"""

from __future__ import annotations

from .binaries import find_binaries
from .control import start, stop
from .server import Server, clients, running, status, using

__all__ = [
    "Server",
    "clients",
    "find_binaries",
    "running",
    "start",
    "status",
    "stop",
    "using",
]
