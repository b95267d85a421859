"""Database URLs: what is taken, what it means to libpq, and that no password is printed."""

from __future__ import annotations

import pytest

from sweep.core.errors import InputError
from sweep.core.masking import mask_url
from sweep.storage.url import dsn, normalise

NORMALISED = [
    ("postgres://h/d", "postgresql+psycopg2://h/d"),
    ("postgresql://u@h:5433/d", "postgresql+psycopg2://u@h:5433/d"),
    ("postgresql+psycopg2://u:p@h/d", "postgresql+psycopg2://u:p@h/d"),
    ("postgresql+psycopg://u:p@h/d", "postgresql+psycopg2://u:p@h/d"),
    ("postgresql+asyncpg://h/d", "postgresql+psycopg2://h/d"),
    ("  PostgreSQL://h/d\n", "postgresql+psycopg2://h/d"),
    ("postgresql://u:{x}%25@h/d", "postgresql+psycopg2://u:%7Bx%7D%25@h/d"),
    ("postgresql://u:a@b@h/d", "postgresql+psycopg2://u:a%40b@h/d"),
    ("postgresql://h/d?sslmode=require", "postgresql+psycopg2://h/d?sslmode=require"),
    ("postgresql:///d?host=/run/pg", "postgresql+psycopg2:///d?host=/run/pg"),
    ("postgresql://[::1]:5432/d", "postgresql+psycopg2://[::1]:5432/d"),
]

PARAMETERS = [
    ("postgresql://h/d", {"host": "h", "dbname": "d"}),
    (
        "postgresql://u%20v:p%40%2F%3A%25@h:5433/d%2Fe",
        {"host": "h", "port": "5433", "user": "u v", "password": "p@/:%", "dbname": "d/e"},
    ),
    (
        "postgresql://h/d?sslmode=verify-full&sslrootcert=/a%20b.pem",
        {"host": "h", "dbname": "d", "sslmode": "verify-full", "sslrootcert": "/a b.pem"},
    ),
    ("postgresql:///d?host=/run/pg&port=6", {"host": "/run/pg", "port": "6", "dbname": "d"}),
    ("postgresql://u@%2Frun%2Fpg/d", {"host": "/run/pg", "user": "u", "dbname": "d"}),
    ("postgresql://[::1]:5432/d", {"host": "::1", "port": "5432", "dbname": "d"}),
    ("postgresql://a:1,b:2/d", {"host": "a,b", "port": "1,2", "dbname": "d"}),
    ("postgresql://h", {"host": "h"}),
]

MASKED = [
    ("postgresql://u:secret@h:5/d", "postgresql://u:***@h:5/d"),
    ("postgresql://u:se@cr/et@h/d", "postgresql://u:***@h/d"),
    ("postgresql://u:secret@h/d?password=secret&sslmode=x", "postgresql://u:***@h/d?***"),
    ("postgresql://h/d?sslpassword=secret", "postgresql://h/d?***"),
    ("mysql://u:secret@h/d", "mysql://u:***@h/d"),
    ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
    ("postgresql://h:5432/d", "postgresql://h:5432/d"),
    ("postgresql://u:42/word@h/d", "postgresql://u:***@h/d"),
    ("postgresql://u:42?word@h/d", "postgresql://u:***@h/d"),
    ("postgresql://h/d?password=42@word", "postgresql://***"),
    ("postgresql:u:secret@h/d", "***"),
    ("host=h password=secret", "***"),
    ("nonsense", "nonsense"),
]

REFUSED = [
    ("sqlite:///x.db", "159 double claims"),
    ("sqlite+pysqlite:///x.db", "159 double claims"),
    ("mysql://u:secret@h/d", "must be a PostgreSQL URL (got 'mysql://***@h/d')"),
    ("study.db", "must be a PostgreSQL URL (got 'study.db')"),
    ("", "must be a PostgreSQL URL (got '')"),
    ("postgresql://h:port/d", "no valid port"),
    ("postgresql://h:70000/d", "no valid port"),
    ("postgresql://u:sec/ret@h/d", "'@' in the database's name"),
    ("postgresql://h:²/d", "no valid port"),
    (f"postgresql://h:{'5' * 5000}/d", "no valid port"),
    ("postgresql://u:42/secret@h/d", "'@' in the database's name"),
    ("postgresql://u:42?secret@h/d", "'@' behind its '?'"),
    ("postgresql://h/d?se+cret=1", "an option of no valid name"),
    ("postgresql://h/d?dbname=a%40b", "'@' in the database's name"),
    ("postgresql://h/d%00", "characters that no name has"),
    ("postgresql://h/\udce9", "characters that no name has"),
    ("host=h password=secret", "must be a PostgreSQL URL (got '***')"),
]


@pytest.mark.parametrize(("url", "expected"), NORMALISED)
def test_normalise(url: str, expected: str) -> None:
    """Every PostgreSQL URL comes out for psycopg2, and once more unchanged."""
    assert normalise(url) == expected
    assert normalise(expected) == expected


@pytest.mark.parametrize(("url", "expected"), PARAMETERS)
def test_dsn(url: str, expected: dict[str, str]) -> None:
    """libpq's parameters are decoded, also after normalising."""
    assert dsn(url) == expected
    assert dsn(normalise(url)) == expected


@pytest.mark.parametrize(("url", "expected"), MASKED)
def test_mask(url: str, expected: str) -> None:
    """No password is left, wherever it stood."""
    assert mask_url(url) == expected


@pytest.mark.parametrize(("url", "words"), REFUSED)
def test_refusals_say_why_and_hide_passwords(url: str, words: str) -> None:
    """Anything else is refused as wrong input, without the password."""
    with pytest.raises(InputError) as caught:
        normalise(url)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value) and "ret@" not in str(caught.value)
