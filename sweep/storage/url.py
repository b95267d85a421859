"""What a database URL means: one driver, and libpq's own parameters.

No database library is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode

from sweep.core.errors import InputError
from sweep.core.masking import keep_url, mask_url

SCHEME = "postgresql+psycopg2"
EXAMPLE = "postgresql://user@host:5432/database"
CODES = "In a password, write ':' as %3A, '@' as %40, '/' as %2F and '?' as %3F."
SQLITE_REASON = (
    "SQLite cannot hold a study: 16 processes claiming 200 waiting trials made 159 double claims."
)


def normalise(url: str) -> str:
    """Return the URL with the driver that sweep and Optuna use, psycopg2.

    ``postgres://``, ``postgresql://`` and any ``postgresql+driver://`` are taken. User name and
    password come out percent-encoded (Optuna treats braces in a URL as a template).

    Raises:
        InputError: The URL is not a PostgreSQL URL, or cannot be read.
    """
    parts = _split(url)
    user, password, place = _authority(parts.authority)
    _hosts(url, place)
    return _join(user, password, place, parts.database, parts.query)


def dsn(url: str) -> dict[str, str]:
    """Return libpq's connection parameters for a URL.

    Query parameters (``sslmode``, ``host=/socket/folder``, …) win over the URL's own places.

    Raises:
        InputError: As ``normalise``.
    """
    parts = _split(url)
    user, password, place = _authority(parts.authority)
    found: dict[str, str] = {}
    if place:
        hosts, ports = _hosts(url, place)
        found["host"] = ",".join(hosts)
        if any(ports):
            found["port"] = ",".join(ports)
    if user:
        found["user"] = user
    if password is not None:
        found["password"] = password
    if parts.database:
        found["dbname"] = parts.database
    query = dict(parts.query)
    if "database" in query:
        query["dbname"] = query.pop("database")
    return found | query


def with_database(url: str, name: str) -> str:
    """Return the URL of another database of the same server, by the same way and as the same user.

    Raises:
        InputError: As ``normalise``.
    """
    parts = _split(url)
    user, password, place = _authority(parts.authority)
    query = [pair for pair in parts.query if pair[0] not in ("dbname", "database")]
    return _join(user, password, place, name, query)


def describe(parameters: Mapping[str, str]) -> str:
    """Return "database at host:port" for messages, from what ``dsn`` gave."""
    host = parameters.get("host", "")
    database = parameters.get("dbname") or parameters.get("user") or ""
    port = parameters.get("port", "5432")
    if not host:
        place = "the local socket"
    elif host.startswith("/"):
        place = f"{host} (port {port})"
    else:
        place = f"{host}:{port}"
    return f'"{database}" at {place}' if database else place


@dataclass(frozen=True)
class _Parts:
    authority: str
    database: str
    query: list[tuple[str, str]]


def _split(url: str) -> _Parts:
    keep_url(url)
    scheme, separator, rest = url.strip().partition("://")
    kind = scheme.lower().partition("+")[0].partition(":")[0]
    advice = f"Give a PostgreSQL URL, such as {EXAMPLE}, or none: sweep then starts a server."
    if kind == "sqlite":
        raise InputError(SQLITE_REASON, advice)
    if not separator or kind not in ("postgres", "postgresql"):
        raise InputError(f"The storage must be a PostgreSQL URL (got {mask_url(url)!r}).", advice)
    if not unquote(url.strip()).isprintable():
        what = f"The storage URL holds characters that no name has ({mask_url(url)!r})."
        raise InputError(what, "Write the URL anew; what is odd in a password as %XX.")
    place, _, query = rest.partition("?")
    authority, _, database = place.partition("/")
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if "@" in query:  # is all that stands before it the password?
        what = f"The storage URL has '@' behind its '?' ({mask_url(url)!r})."
        raise InputError(what, CODES)
    # Of a password with a raw "/" or "?" a part would be taken for the database or an option.
    names = (database, options.get("dbname", ""), options.get("database", ""))
    if any("@" in unquote(name) for name in names):
        raise InputError(
            f"The storage URL has '@' in the database's name ({mask_url(url)!r}).", CODES
        )
    if any(not re.fullmatch(r"[a-z_]+", name) for name in options):
        raise InputError(
            f"The storage URL has an option of no valid name ({mask_url(url)!r}).", CODES
        )
    return _Parts(authority, unquote(database), pairs)


def _authority(netloc: str) -> tuple[str, str | None, str]:
    credentials, at, place = netloc.rpartition("@")
    if not at:
        return "", None, place
    user, colon, password = credentials.partition(":")
    return unquote(user), unquote(password) if colon else None, place


def _hosts(url: str, place: str) -> tuple[list[str], list[str]]:
    hosts, ports = [], []
    for one in place.split(","):
        if one.startswith("["):
            host, _, port = one[1:].partition("]")
            port = port.lstrip(":")
        else:
            host, _, port = one.partition(":")
        if port and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536):
            raise InputError(f"The storage URL has no valid port ({mask_url(url)!r}).", CODES)
        hosts.append(unquote(host))
        ports.append(port)
    return hosts, ports


def _join(
    user: str, password: str | None, place: str, database: str, query: list[tuple[str, str]]
) -> str:
    secret = "" if password is None else ":" + quote(password, safe="")
    credentials = f"{quote(user, safe='')}{secret}@" if user or secret else ""
    tail = f"?{urlencode(query, quote_via=quote, safe='/')}" if query else ""
    return f"{SCHEME}://{credentials}{place}/{quote(database, safe='')}{tail}"
