"""What an error of the database's means: will it pass, and what is to be done?"""

from __future__ import annotations

from typing import Any

import psycopg2

# SQLSTATEs (or their classes) after which asking again may help. 08 connection, 40 rolled back
# (deadlock, serialisation), 53 out of resources (connections, memory, disk), 57 operator (shutdown,
# statement timeout), 25006 a read-only stand-by after a failover, 25P03 idle in transaction,
# 55P03 a lock not granted in time. PostgreSQL's manual, appendix A.
PASSING_CLASSES = ("08", "40", "53", "57")
PASSING_STATES = ("25006", "25P03", "55P03")
# Of those, the ones that leave the session usable.
HARMLESS_STATES = ("40001", "40P01", "55P03", "57014")

UNKNOWN_TO_POOLER = (
    "Name this database in PgBouncer's [databases] (or let `*` stand for all), or give the "
    "server's own address; PgBouncer's log says more."
)
# Refusals that no waiting mends, by the words of the server or of libpq: a failed connection has no
# SQLSTATE in psycopg2. Text in other languages counts as passing, and is shown when patience ends.
REFUSALS = {
    "password authentication failed": "Check the user name and the password in the storage URL.",
    "no password supplied": "Put the password into the storage URL, or into a PGPASSFILE.",
    "authentication failed": "Check the user name and how the server authenticates it.",
    "no pg_hba.conf entry": "Ask the server's administrator to admit this host in pg_hba.conf.",
    "does not support SSL": "Leave sslmode out of the storage URL, or turn SSL on at the server.",
    "certificate verify failed": "Check sslrootcert in the storage URL.",
    "root certificate file": "Check sslrootcert in the storage URL.",
    "does not match host name": (
        "Name the server in the storage URL as its certificate does, or have the certificate name "
        "that host."
    ),
    "certificate file": "Check sslcert and sslkey in the storage URL.",
    "private key file": "Check sslkey in the storage URL: a file that only you may read.",
    "valid client certificate": "Name a certificate that the server knows: sslcert, sslkey.",
    "weak sslmode": "With sslrootcert=system write sslmode=verify-full.",
    "invalid integer value": "Correct that option of the storage URL.",
    "invalid sslmode value": "Write sslmode=disable, require, verify-ca or verify-full.",
    "does not exist": "Create it on the server (createdb, createuser), or correct the URL.",
    "no such database": UNKNOWN_TO_POOLER,
    "bouncer config error": UNKNOWN_TO_POOLER,
    "permission denied for database": "Ask the server's administrator for the CONNECT privilege.",
    "invalid connection option": "Remove the unknown option from the storage URL.",
    "statement pooling mode": (
        "Set pool_mode = transaction (or session) for this database in PgBouncer, or name the "
        "server's own address."
    ),
    "is not permitted to log in": "Ask the server's administrator for a role that may log in.",
}
# Also "does not exist" when a server is away: the socket's file. That one passes.
SOCKET_MISSING = "No such file or directory"


def advice_for(text: str) -> tuple[str, str] | None:
    """Return (what was said, what to do) for a refusal that no waiting mends; else None."""
    if SOCKET_MISSING in text:
        return None
    return next(((words, advice) for words, advice in REFUSALS.items() if words in text), None)


def is_full(error: Exception) -> bool:
    """Tell whether the server had no connection left (SQLSTATE 53300, where it had been asked)."""
    text = str(error)
    return "too many clients" in text or "connection slots" in text or "too many conn" in text


def passes(error: Any) -> bool:
    """Tell whether a psycopg2 error speaks of the database's state rather than the statement."""
    if error.pgcode is None:
        # The connection broke (OperationalError), was closed (InterfaceError), or libpq lost the
        # thread (DatabaseError itself).
        return isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError) or (
            type(error) is psycopg2.DatabaseError
        )
    return error.pgcode[:2] in PASSING_CLASSES or error.pgcode in PASSING_STATES


def first_line(error: Exception) -> str:
    """Return the server's own words in one line, without libpq's address and severity."""
    text = str(error).strip()
    line = text.splitlines()[0].strip() if text else type(error).__name__
    return line.rpartition("FATAL:")[2].strip().rstrip(".") if "FATAL:" in line else line
