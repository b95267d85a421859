"""Where a server is to listen: the name of a network interface, or an address, of this machine."""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from sweep.core.errors import SweepError

SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface
IF_INET6 = Path("/proc/net/if_inet6")
_LINK_LOCAL = 0x20  # scope, include/net/ipv6.h
_NAME_BYTES = 15  # IFNAMSIZ, less the end


def find_address(listen: str) -> str:
    """Return the address that an interface of this machine has, or the address as it was given.

    Raises:
        SweepError: There is no such interface, or it has no address.
    """
    try:
        return str(ip_address(listen))
    except ValueError:
        pass
    names = [name for _, name in socket.if_nameindex()]
    if listen not in names:
        raise SweepError(
            f"storage.embedded.listen is {listen}, and {socket.gethostname()} has no such network "
            f"interface, but {', '.join(names)}.",
            "Name one that every machine has on which the database may run, or one address.",
        )
    address = _ipv4(listen) or _ipv6(listen)
    if address is None:
        raise SweepError(
            f"storage.embedded.listen is {listen}, which has no address on {socket.gethostname()}.",
            "Name another interface, or an address.",
        )
    return address


def _ipv4(name: str) -> str | None:
    packed = struct.pack("256s", name.encode()[:_NAME_BYTES])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asker.fileno(), SIOCGIFADDR, packed)[20:24])
        except OSError:
            return None


def _ipv6(name: str, path: Path = IF_INET6) -> str | None:
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    for row in rows:
        if len(row) == 6 and row[5] == name and int(row[3], 16) != _LINK_LOCAL:
            return str(IPv6Address(int(row[0], 16)))
    return None
