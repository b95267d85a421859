"""Where the ranks of one trial meet: the first host of its allocation, and a port of its own there;
those of a single node at 127.0.0.1.

The port comes from the task's job, array index and slot, so that neighbours differ without asking
anybody; then it is tested to be free, and held against the user's other trials on this host by a
lock that ends with this process. Ranks that meet strangers all the same are told by their token.
"""

from __future__ import annotations

import errno
import os
import socket
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.core.errors import InputError, SweepError
from sweep.core.executors import kind_of
from sweep.core.files import make_private, take_lock
from sweep.core.study import Study
from sweep.core.system.own_folder import own_folder

LOOPBACK = "127.0.0.1"


@dataclass
class Rendezvous:
    """An address that the ranks of one trial have for themselves.

    Attributes:
        host: Of rank 0, as the other hosts know it.
        port: On that host.
    """

    host: str
    port: int
    _lock: int | None = None

    def close(self) -> None:
        """Let others of this user have the port."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def meet(
    study: Study,
    environ: Mapping[str, str],
    job: str | None,
    index: int | None,
    slot: int | None,
    folder: Path | None = None,
) -> Rendezvous:
    """Return where the ranks of this task's trial meet.

    Called on the host of rank 0: the first of the allocation, where a batch script runs.

    Args:
        environ: The task's.
        job, index, slot: The task's place; None where it has none.
        folder: Of the ports' locks; one a user and host where not given.

    Raises:
        InputError: This host lacks the network interface that the study names.
        SweepError: No port of ``ddp.port_range`` is free.
    """
    check_interface(study.ddp.interface)
    # One node's ranks need no name of it, which may not resolve there.
    host = first_host(study, environ) if study.resources.nodes > 1 else LOOPBACK
    slots = max(1, study.slurm.slots)
    first = zlib.crc32((job or str(os.getpid())).encode()) + (index or 0) * slots + (slot or 0)
    low, high = study.ddp.port_range
    folder = make_private(folder) if folder else own_folder("ports")
    for tried in range(high - low + 1):
        port = low + (first + tried) % (high - low + 1)
        lock = take_lock(folder / str(port))
        if lock is None:
            continue
        if is_free(port):
            return Rendezvous(host, port, lock)
        os.close(lock)
    raise SweepError(
        f"ddp.port_range: no port from {low} to {high} is free on {host}.",
        "Name a wider or another range that your site leaves to users.",
    )


def first_host(study: Study, environ: Mapping[str, str]) -> str:
    """Return the first host of a task's allocation; without one, this machine's own address."""
    return next(iter(kind_of(study).hosts_of(environ)), LOOPBACK)


def is_free(port: int) -> bool:
    """Tell whether a server could listen at a port of this host, at any address."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family) as probe:
                # As torch does: connections that ended a moment ago are in nobody's way.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
                probe.listen()
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # no IPv6 here
                return False
    return True


def check_interface(wanted: str | None, existing: Iterable[str] | None = None) -> None:
    """Refuse a network interface that this host does not have.

    Without it gloo fails with an error about an address, and NCCL waits until it gives up.

    Args:
        wanted: ``ddp.interface``: a name, or several with commas.
        existing: The host's interfaces; asked for where not given.

    Raises:
        InputError: Names what the host has.
    """
    if wanted is None:
        return
    if existing is None:
        existing = [name for _, name in socket.if_nameindex()]
    there = list(existing)
    missing = [name for name in wanted.split(",") if name not in there]
    if missing:
        raise InputError(
            f"ddp.interface: host {socket.gethostname()} has no network interface "
            f"{', '.join(missing)}; it has {', '.join(there)}.",
            "Set ddp.interface to the one by which the hosts reach each other (`ip -br address` "
            "shows them), or leave it out.",
        )
