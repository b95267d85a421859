"""What a PostgreSQL server says of itself: its connections, its version, its clock."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.storage.connection import Database

_FACTS = """
SELECT current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
        AND pid <> pg_backend_pid()),
       (SELECT CASE WHEN rolsuper THEN -1 ELSE rolconnlimit END
        FROM pg_roles WHERE rolname = current_user),
       (SELECT CASE WHEN rolsuper THEN -1 ELSE datconnlimit END
        FROM pg_database, pg_roles WHERE datname = current_database() AND rolname = current_user),
       current_setting('server_version'), extract(epoch from clock_timestamp())::float8
"""


@dataclass(frozen=True)
class ServerFacts:
    """What a server says of itself.

    Attributes:
        max_connections, reserved: Its places, and how many are kept for superusers.
        used: Those that others have taken.
        role_limit, database_limit: How many this user may have, and this database; -1: no limit.
        version: In words.
        clock_s: Its clock, in seconds since the epoch.
    """

    max_connections: int
    reserved: int
    used: int
    role_limit: int
    database_limit: int
    version: str
    clock_s: float


def read_facts(db: Database) -> ServerFacts:
    """Ask a server what it says of itself, by one statement."""
    return ServerFacts(*db.execute(_FACTS)[0])
