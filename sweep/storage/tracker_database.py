"""A database of a tracker's own, beside the study's on the same server.

MLflow keeps its runs in tables of its own, which it makes and alters by itself, under names that
might be Optuna's as well. Its database is named after the study's: NAME_mlflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2

from sweep.core.errors import SweepError
from sweep.storage import locks
from sweep.storage.connection import Database
from sweep.storage.url import describe, dsn, with_database

SUFFIX = "_mlflow"
VERSION_TABLE = "alembic_version"  # MLflow's
LONGEST_NAME = 63  # bytes of a name in PostgreSQL
MAKE_S = 120.0  # a copy of an empty database, or a tracker's tables, on a busy machine
ELSEWHERE = (
    "or keep MLflow's runs elsewhere: export MLFLOW_TRACKING_URI=…, or leave it out of track"
)


def url_beside(db: Database) -> str:
    """Return the URL of the tracker's database, whether it exists or not; with its password.

    Raises:
        SweepError: As ``Database.execute``.
    """
    [[current, role]] = db.execute("SELECT current_database(), current_user")
    # A pooler may know the database by another name than the server.
    return with_database(db.url, _name_beside(dsn(db.url).get("dbname") or str(current or role)))


def make(db: Database) -> bool:
    """Make the tracker's database unless it is there, and see that it takes tables.

    Returns:
        Whether it is new, so that it has no tables yet.

    Raises:
        SweepError: The role may not make one, or may make no tables in it; what to do.
        DatabaseUnavailable: The server does not answer.
    """
    url = url_beside(db)
    name = dsn(url)["dbname"]
    [[role]] = db.execute("SELECT current_user")
    owned = f"CREATE DATABASE {_quoted(name)} OWNER {_quoted(str(role))};"
    is_new = False
    with closing(Database(db.url, timeout_s=MAKE_S)) as maker:
        if not _is_there(maker, name):
            try:
                # Nobody is ever connected to template0, as somebody may be to template1.
                maker.execute(f"CREATE DATABASE {_quoted(name)} TEMPLATE template0")
                is_new = True
            except psycopg2.errors.InsufficientPrivilege:
                raise SweepError(
                    f"track: [mlflow] keeps its runs in a database of its own, {name}, and "
                    f"the role {role} may not create one on {describe(dsn(db.url))}.",
                    f"Ask the server's administrator for: {owned} {ELSEWHERE}.",
                ) from None
            except (psycopg2.errors.DuplicateDatabase, psycopg2.errors.UniqueViolation):
                pass  # another launch has just made it
    with closing(Database(url)) as beside:
        sql = "SELECT has_schema_privilege(current_user, current_schema()::text, 'CREATE')"
        if not beside.execute(sql)[0][0]:
            raise SweepError(
                f"track: [mlflow] keeps its runs in the database {name}, in which the role {role} "
                "may create no tables.",
                f"Ask the server's administrator for: ALTER DATABASE {_quoted(name)} OWNER TO "
                f"{_quoted(str(role))}; {ELSEWHERE}.",
            )
    return is_new


def is_made(db: Database) -> bool:
    """Tell whether the tracker's database is there."""
    return _is_there(db, dsn(url_beside(db))["dbname"])


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Be the only one of all processes, on any machine, that makes a tracker's tables.

    Args:
        url: Of the tracker's database.

    Raises:
        DatabaseUnavailable: Another one has been at it for a while.
    """
    with closing(Database(url, timeout_s=MAKE_S)) as beside, locks.held(beside, locks.TRACKER, 0):
        yield


@contextmanager
def with_tables(url: str) -> Iterator[None]:
    """Use a tracker's tables for the first time, which makes them: alone where there are none yet.

    Where they are there, all tasks go on at once: one behind the other, those of a busy cluster
    waited for minutes, and did nothing meanwhile.

    Args:
        url: Of the tracker's database.

    Raises:
        DatabaseUnavailable: Somebody has been making them for a while.
    """
    with (
        closing(Database(url, timeout_s=MAKE_S)) as beside,
        locks.held(beside, locks.TRACKER, 0, shared=True),
    ):
        if beside.execute("SELECT to_regclass(%s) IS NOT NULL", (VERSION_TABLE,))[0][0]:
            yield
            return
    with alone(url):
        yield


def _is_there(db: Database, name: str) -> bool:
    return bool(db.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)))


def _name_beside(name: str) -> str:
    if len((name + SUFFIX).encode()) <= LONGEST_NAME:
        return name + SUFFIX
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    kept = name.encode()[: LONGEST_NAME - len(SUFFIX) - 13].decode(errors="ignore")
    return f"{kept}_{digest}{SUFFIX}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
