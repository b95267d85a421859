"""Ports for the servers that tests start by themselves."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below those that the system gives to whoever connects (32768 and more), and beside those that
# sweep chooses for its own servers and ranks (20000 and more).
LOWEST, HIGHEST = 10_000, 19_999
_chance = random.SystemRandom()  # a test that seeds ``random`` would choose as another does


def quiet_port(host: str = "127.0.0.1") -> int:
    """Return a free port which stays free: the system gives it to nobody by itself.

    One that is bound to 0 and closed may be any connection's before the server listens there.
    """
    while True:
        port = _chance.randint(LOWEST, HIGHEST)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
