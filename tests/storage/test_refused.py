"""What a database cannot hold spoils nothing beside it, and is noted."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from sweep.core.trial import End, Place, Reading, Report
from sweep.storage import tables
from sweep.storage.attempts import clean
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.postgres_fixture import Server
from tests.storage import ledgers
from tests.study_rows import make_study


@pytest.fixture
def latin_url(postgres_server: Server) -> Iterator[str]:
    """A database that knows no Greek."""
    name = f"t{secrets.token_hex(6)}"
    postgres_server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    tables.create(postgres_server.url(name))
    yield postgres_server.url(name)
    postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def claimed(url: str) -> Ledger:
    ledger = ledgers.make(Database(url), make_study(trials=1))
    ledgers.do(ledger, lambda: ledger.claim("token", Place("job", 0, "here")))
    return ledger


def test_names_that_the_encoding_lacks(latin_url: str) -> None:
    ledger = claimed(latin_url)
    reports = [
        Report(step, 1.0, {"loss": float(step), "\N{GREEK SMALL LETTER LAMDA}": 0.5})
        for step in range(5)
    ]
    ledger.record("token", reports, Reading("{}"))
    stored = ledger.db.execute("SELECT name, step FROM sweep_metric ORDER BY step")
    assert stored == [("loss", step) for step in range(5)]
    (attempt,) = ledger.all_attempts()
    (note,) = attempt.notes
    assert note.startswith("5 values were not stored, the first: ")
    assert "'\N{GREEK SMALL LETTER LAMDA}' at step 0 was refused by the database" in note
    assert attempt.journal == "{}"
    # What is noted later does not hide it.
    ledger.record("token", [Report(9, 1.0, {"loss": 1.0})], Reading("{}", ("odd",)))
    assert ledger.all_attempts()[0].notes == ("odd", note)


def test_reasons_that_the_encoding_lacks(latin_url: str) -> None:
    ledger = claimed(latin_url)
    end = End("error", "caf\u00e9 \N{GREEK SMALL LETTER LAMDA}\0\ud800", 1)
    ledgers.do(ledger, lambda: ledger.fail("token", end, ("/a/\udce9\N{SNOWMAN}", None)))
    (attempt,) = ledger.all_attempts()
    assert (attempt.reason, attempt.checkpoint) == ("caf\u00e9 ???", "/a/??")


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("plain \N{SNOWMAN}", "utf-8", "plain \N{SNOWMAN}"),
        ("a\0b", "utf-8", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\ud800b", "utf-8", "a?b"),
        ("\N{SNOWMAN}", "iso8859_1", "?"),
    ],
)
def test_clean(text: str, encoding: str, expected: str) -> None:
    assert clean(text, encoding) == expected


def test_a_name_that_is_no_text(fresh_url: str) -> None:
    """Half characters; the journal passes none on, but another reader may."""
    ledger = claimed(fresh_url)
    ledger.record("token", [Report(1, 1.0, {"loss": 1.0, "\ud800": 2.0})], Reading("{}"))
    assert ledger.db.execute("SELECT name FROM sweep_metric") == [("loss",)]
    assert len(ledger.all_attempts()[0].notes) == 1
