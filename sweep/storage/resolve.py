"""Addresses of hosts, found in bounded time."""

from __future__ import annotations

import socket
import threading
from ipaddress import ip_address


def is_address(host: str) -> bool:
    """Tell whether a host is given by its address, so that nothing need be asked."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def resolve(host: str, timeout_s: float) -> list[str] | str:
    """Return a host's addresses, or a sentence saying why there are none.

    libpq would resolve the name itself, without a limit in time: a name server that is away can
    take minutes.
    """
    found: list[list[str] | str] = []

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            found.append(f"the name {host!r} cannot be resolved ({error})")
        else:
            found.append(list(dict.fromkeys(str(info[4][0]) for info in infos)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(max(timeout_s, 0.0))
    return found[0] if found else f"the name {host!r} was not resolved in time"
