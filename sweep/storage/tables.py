"""The tables: Optuna's, made by Optuna itself, and three of our own beside them.

Only ``launch`` creates: several first connections to an empty database at once crash on DDL.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass

import psycopg2

from sweep.core import own_version
from sweep.core.errors import BusyError, DatabaseUnavailable, SweepError
from sweep.core.masking import mask_url
from sweep.storage import locks
from sweep.storage.connection import Database
from sweep.storage.server_errors import first_line, is_full, passes
from sweep.storage.url import normalise

# The revision of Optuna's schema that our statements are written for (its alembic head since 3.2).
REVISION = "v3.2.0.a"
OLDEST_SERVER = 130000  # server_version_num of PostgreSQL 13
FULL_PATIENCE_S = 10.0  # for a place, where the server has none left
LOCK_PATIENCE_S = 60.0
ALTER_WAIT_S = 5  # for others to let go of a table
LONGEST_STEP = 2**31 - 1  # in 32 bits, as Optuna declares it

TABLES = """
CREATE TABLE IF NOT EXISTS sweep_attempt (
  attempt_id bigserial PRIMARY KEY,
  trial_id integer NOT NULL REFERENCES trials ON DELETE CASCADE,
  number integer NOT NULL,
  token text NOT NULL UNIQUE,
  job text,
  array_index integer,
  slot integer,
  host text NOT NULL,
  process_group integer,
  boot_id text,
  claimed timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen timestamptz NOT NULL DEFAULT clock_timestamp(),
  first_step bigint,
  resumed_from text,
  resumed_sha256 text,
  checkpoint text,
  checkpoint_sha256 text,
  outcome text,
  reason text NOT NULL DEFAULT '',
  exit_code integer,
  signal integer,
  ended timestamptz,
  UNIQUE (trial_id, number)
);
CREATE INDEX IF NOT EXISTS sweep_attempt_live ON sweep_attempt (trial_id) WHERE outcome IS NULL;

CREATE TABLE IF NOT EXISTS sweep_metric (
  trial_id integer NOT NULL REFERENCES trials ON DELETE CASCADE,
  attempt integer NOT NULL,
  name text NOT NULL,
  step bigint NOT NULL,
  value double precision NOT NULL,
  logged double precision NOT NULL,
  PRIMARY KEY (trial_id, attempt, name, step)
);

CREATE TABLE IF NOT EXISTS sweep_rerun (
  rerun_id bigserial PRIMARY KEY,
  study_id integer NOT NULL REFERENCES studies ON DELETE CASCADE,
  k integer NOT NULL,
  trial_id integer NOT NULL REFERENCES trials ON DELETE CASCADE,
  kind text NOT NULL,
  seed bigint NOT NULL,
  token text UNIQUE,
  job text,
  host text,
  process_group integer,
  requested timestamptz NOT NULL DEFAULT clock_timestamp(),
  claimed timestamptz,
  seen timestamptz,
  outcome text,
  reason text NOT NULL DEFAULT '',
  exit_code integer,
  ended timestamptz,
  result jsonb NOT NULL DEFAULT '{}',
  UNIQUE (study_id, k)
);
CREATE INDEX IF NOT EXISTS sweep_rerun_trial ON sweep_rerun (trial_id);

DROP INDEX IF EXISTS sweep_trials_open;
CREATE INDEX IF NOT EXISTS sweep_trials_state ON trials (study_id, state, trial_id);
"""

# Of our own tables: one more where a change would be misread by those before it. What is only added
# is not: tasks of an earlier version go on with it. Tables without a version are of 0.1.0.
VERSION = 1
VERSION_COMMENT = "sweep: tables of version "
COLUMNS_TO_ADD = f"""
ALTER TABLE sweep_attempt ADD COLUMN IF NOT EXISTS journal text;
ALTER TABLE sweep_attempt ADD COLUMN IF NOT EXISTS notes text;
COMMENT ON TABLE sweep_attempt IS '{VERSION_COMMENT}{VERSION}'
"""
VERSION_SQL = "SELECT obj_description(to_regclass('sweep_attempt'), 'pg_class')"
OPTUNA_SQL = """
SELECT (SELECT version_num FROM alembic_version), (SELECT library_version FROM version_info)
"""
# The last thing that TABLES makes: where it is there, everything is.
COMPLETE_SQL = """
SELECT (SELECT version_num FROM alembic_version),
       (SELECT library_version FROM version_info),
       to_regclass('sweep_trials_state') IS NOT NULL
"""
# What has come later: tables of an earlier version serve without it until the next launch.
COLUMNS_SQL = """
SELECT attrelid::regclass::text || '.' || attname, atttypid::regtype::text FROM pg_attribute
WHERE NOT attisdropped AND ((attrelid = to_regclass('sweep_attempt') AND attname IN ('journal',
  'notes')) OR (attrelid = to_regclass('trial_intermediate_values') AND attname = 'step'))
"""
# The columns ``journal`` and ``notes`` of an attempt ``a``; NULL where there are none.
READING_COLUMNS = "to_jsonb(a) ->> 'journal', to_jsonb(a) ->> 'notes'"
WIDEN_SQL = "ALTER TABLE trial_intermediate_values ALTER COLUMN step TYPE bigint"


@dataclass(frozen=True)
class Tables:
    """What a database's tables can hold.

    Attributes:
        keep_readings: Up to where an attempt's files were read, and notes on them.
        longest_step: The highest step that Optuna's own table takes.
    """

    keep_readings: bool
    longest_step: int


def read_tables(database: Database) -> Tables:
    """Look at what the tables can hold."""
    found = dict(database.execute(COLUMNS_SQL))
    wide = found.get("trial_intermediate_values.step") == "bigint"
    keeps = "sweep_attempt.journal" in found and "sweep_attempt.notes" in found
    return Tables(keeps, 2**63 - 1 if wide else LONGEST_STEP)


def read_notes(stored: str | None) -> tuple[str, ...]:
    """Return the notes of an attempt as its column holds them."""
    return tuple(json.loads(stored)) if stored else ()


def create(url: str, *, own: bool = False) -> None:
    """Make every table that is missing; where all are there, two queries and no Optuna import.

    Args:
        own: The database is ours alone: Optuna's table takes steps of 64 bits then.

    Raises:
        SweepError: The tables belong to another version of Optuna or to a newer sweep, the server
            is too old, or the user may not create tables.
        BusyError: Another command has been making them for a minute.
        DatabaseUnavailable: The database does not answer.
    """
    database, holder = Database(url), Database(url)
    try:
        refuse_newer(database)
        if _is_complete(database) and _is_current(database, own):
            return
        _check_server(database)
        database.close()  # a waiting one takes one place of the server's, not two
        _lock(holder)
        if not _is_complete(database):
            _create_optuna_tables(normalise(url))
            with database.transaction():
                database.execute(TABLES)
            check(database)
        _bring_up_to_date(database, own)
    except psycopg2.errors.InsufficientPrivilege as error:
        raise SweepError(
            f"The database's user may not create tables: {str(error).strip().splitlines()[0]}.",
            "Ask the server's administrator for GRANT CREATE ON SCHEMA public, or give a URL with "
            "a user that owns the database.",
        ) from error
    finally:
        database.close()
        holder.close()  # which gives the lock back


def _is_current(database: Database, own: bool) -> bool:
    found = read_tables(database)
    is_wide = not own or found.longest_step > LONGEST_STEP
    return found.keep_readings and is_wide and read_version(database) == VERSION


def read_version(database: Database) -> int:
    """Return the version of our own tables; 0 where they carry none, as those of 0.1.0."""
    text = str(database.execute(VERSION_SQL)[0][0] or "")
    number = text.removeprefix(VERSION_COMMENT)
    return int(number) if text != number and number.isdecimal() else 0


def refuse_newer(database: Database) -> None:
    """Refuse tables that a newer sweep has made: what they mean is not known here.

    Raises:
        SweepError: So they are.
        DatabaseUnavailable: The database does not answer.
    """
    found = read_version(database)
    if found > VERSION:
        raise SweepError(
            f"{_name(database)} has tables of version {found}, made by a newer sweep; this one, "
            f"{own_version.VERSION}, knows those up to {VERSION}.",
            "Install that sweep here: pip install -U sweep-hpo",
        )


def _bring_up_to_date(database: Database, own: bool) -> None:
    """Add what has come later; without it a study runs as well, and less is kept."""
    if _is_current(database, own):
        return
    # Somebody reads or writes the table for long, or it is not ours to change.
    refusals = (psycopg2.errors.InsufficientPrivilege, DatabaseUnavailable)
    for sql in (COLUMNS_TO_ADD, WIDEN_SQL) if own else (COLUMNS_TO_ADD,):
        with contextlib.suppress(*refusals), database.transaction():
            database.execute(f"SET LOCAL lock_timeout = '{ALTER_WAIT_S}s'; {sql}")


def check(database: Database) -> None:
    """Make sure that the tables are there and are those that this version of sweep knows.

    Raises:
        SweepError: They are missing, or made by another version of Optuna.
        DatabaseUnavailable: The database does not answer.
    """
    refuse_newer(database)
    if not _is_complete(database):
        raise SweepError(
            f"{_name(database)} holds no studies of sweep.",
            "Run `sweep launch STUDY.yaml` first: it makes the tables.",
        )


def check_optuna(database: Database) -> None:
    """Make sure that Optuna's tables are there, of the version that our statements are for.

    Raises:
        SweepError: They are missing, or made by another version of Optuna.
        DatabaseUnavailable: The database does not answer.
    """
    try:
        revision, library = database.execute(OPTUNA_SQL)[0]
    except psycopg2.errors.UndefinedTable:
        revision = library = None
    if revision is None:
        raise SweepError(
            f"{_name(database)} has none of Optuna's tables.",
            "Run `sweep launch STUDY.yaml` first: it makes them. (So does opening the database "
            "once with optuna.storages.RDBStorage.)",
        )
    if revision != REVISION:
        raise _other_version(database, revision, library)


def _name(database: Database) -> str:
    return f"The database {mask_url(database.url)}"


def _is_complete(database: Database) -> bool:
    try:
        revision, library, complete = database.execute(COMPLETE_SQL)[0]
    except psycopg2.errors.UndefinedTable:
        return False
    if revision is not None and revision != REVISION:
        raise _other_version(database, revision, library)
    return revision is not None and bool(complete)


def _other_version(database: Database, revision: str, library: str | None) -> SweepError:
    import optuna

    made_by = f"schema {revision}, first made by Optuna {library or 'of unknown version'}"
    known = f"schema {REVISION}, as the installed Optuna {optuna.__version__} does"
    if revision > REVISION:
        advice = "Install a newer sweep and Optuna here: pip install -U sweep optuna"
    else:
        advice = (
            "Bring the tables up to date, while nothing runs on them: "
            "optuna storage upgrade --storage URL"
        )
    return SweepError(f"{_name(database)} has {made_by}; this sweep needs {known}.", advice)


def _check_server(database: Database) -> None:
    number = int(database.execute("SHOW server_version_num")[0][0])
    if number < OLDEST_SERVER:
        raise SweepError(
            f"The PostgreSQL server is too old: {number // 10000}.",
            f"Use PostgreSQL {OLDEST_SERVER // 10000} or newer.",
        )


def _lock(holder: Database) -> None:
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while not locks.try_tables(holder):
        if time.monotonic() > deadline:
            raise BusyError(
                f"Another command has been making the tables for {LOCK_PATIENCE_S:.0f} s.",
                "Wait for it, or end it, and try again.",
            )
        time.sleep(0.1)


def _create_optuna_tables(url: str) -> None:
    import optuna
    import sqlalchemy.exc

    engine_options = {
        "poolclass": sqlalchemy.NullPool,
        "connect_args": {"connect_timeout": 20, "tcp_user_timeout": 20000},
    }
    give_up_at = time.monotonic() + FULL_PATIENCE_S
    try:
        while True:
            try:
                optuna.storages.RDBStorage(url, engine_kwargs=engine_options).engine.dispose()
                return
            except sqlalchemy.exc.OperationalError as error:
                # Our own session, just closed, may have the last place for a moment yet.
                if not is_full(error) or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.1)
    except sqlalchemy.exc.DBAPIError as error:
        if isinstance(error.orig, psycopg2.Error):
            if passes(error.orig):
                said = first_line(error.orig)
                raise DatabaseUnavailable(f"Optuna could not make its tables: {said}") from error
            raise error.orig from None
        raise
    except optuna.exceptions.StorageInternalError as error:  # so it calls what the server refused
        said = str(error.__cause__ or error).strip().partition("\n")[0]
        raise DatabaseUnavailable(f"Optuna could not make its tables: {said}") from error
