"""The network between ranks: what can be checked before, and what torch's errors mean."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

from .failures import InputError


def check_interfaces(
    environ: Mapping[str, str], cuda: bool, existing: Iterable[str] | None = None
) -> None:
    """Refuse a network interface that this host does not have.

    Without this check gloo fails with an error about an address, and NCCL waits or picks another.

    Args:
        environ: May set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.
        cuda: Whether NCCL will be used.
        existing: The host's interfaces; asked for where not given.

    Raises:
        InputError: Names the variable, its value and what the host has.
    """
    if existing is None:
        existing = [name for _, name in socket.if_nameindex()]
    existing = list(existing)
    for variable in ("GLOO_SOCKET_IFNAME", *(["NCCL_SOCKET_IFNAME"] if cuda else [])):
        value = environ.get(variable, "")
        # NCCL's list has prefixes, "=" in front for exact names, "^" for those to leave out.
        if not value or value.startswith("^"):
            continue
        exact = value.startswith("=") or variable.startswith("GLOO")
        wanted = value.lstrip("=").split(",")
        if not any(name == w if exact else name.startswith(w) for w in wanted for name in existing):
            raise InputError(
                f"{variable}={value}: host {socket.gethostname()} has no such network interface; "
                f"it has {', '.join(existing)}. Set {variable} to the one that the hosts reach "
                "each other by (`ip -br address` shows them), or leave it unset."
            )


def strangers(environ: Mapping[str, str]) -> str:
    """Return the text for a rank that met another run at its own address."""
    return (
        f"another run answers at {_address(environ)}: its ranks have another SWEEP_TOKEN. Two runs "
        "took one port; nothing was shared between them. Start again with a MASTER_PORT of its own."
    )


def explain(error: BaseException, environ: Mapping[str, str], timeout_s: float) -> str:
    """Return a sentence for an error of torch.distributed, with what to do, and its first line."""
    text = str(error)
    lower = text.lower()
    if "eaddrinuse" in lower or "address already in use" in lower:
        said = (
            f"port {environ.get('MASTER_PORT')} of {environ.get('MASTER_ADDR')} is taken by "
            "another program. Start again with another MASTER_PORT."
        )
    elif any(
        word in lower
        for word in (
            "name or service not known",
            "gai error",
            "getaddrinfo",
            "nodename nor servname",
        )
    ):
        said = (
            f"the name {environ.get('MASTER_ADDR')} does not resolve on this host. Set "
            "MASTER_ADDR to an address or a name that all hosts know."
        )
    elif any(
        word in lower
        for word in (
            "ifname",
            "unable to find address",
            "unable to resolve",
            "no route to host",
            "network is unreachable",
        )
    ):
        said = (
            "the ranks' hosts do not reach each other by the network that was chosen"
            f"{_chosen(environ)}. Set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the "
            "interface that connects them."
        )
    elif any(word in lower for word in ("timed out", "timeout", "wait timeout")):
        said = (
            f"another rank was not heard for {timeout_s:g} s (SWEEP_DDP_TIMEOUT_S) at "
            f"{_address(environ)}. It died, hangs, never started, or is not reached by the "
            f"network that was chosen{_chosen(environ)}."
        )
    elif any(
        word in lower
        for word in (
            "connection closed",
            "connection reset",
            "broken pipe",
            "connection was likely closed",
            "connection refused",
        )
    ):
        said = "the connection to another rank broke: that process has ended."
    else:
        said = "the ranks could not work together."
    return f"{said} (torch says: {text.strip().splitlines()[0][:300] if text.strip() else error!r})"


def is_of_ranks(error: BaseException) -> bool:
    """Whether an exception of a run with several ranks comes from the talk between them."""
    lower = str(error).lower()
    return "dist" in type(error).__name__.lower() or any(
        word in lower
        for word in (
            "gloo",
            "nccl",
            "connection closed",
            "connection reset",
            "store",
            "timed out",
            "broken pipe",
        )
    )


def _address(environ: Mapping[str, str]) -> str:
    return f"{environ.get('MASTER_ADDR')}:{environ.get('MASTER_PORT')}"


def _chosen(environ: Mapping[str, str]) -> str:
    names = [
        f"{name}={environ[name]}"
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        if environ.get(name)
    ]
    return f" ({', '.join(names)})" if names else ""
