"""A database and a folder that the first 0.1.0 has made: read as they are, brought up to date by a
launch, and gone on with; those of a newer sweep are refused.

``made_by_0_1_0`` was made by the oldest version that ran: three trials, then three more of which
two were stopped in their course; ``pg_dump --inserts --no-owner --no-privileges``, and the study's
folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sweep.storage import tables
from sweep.storage.connection import Database
from sweep.storage.url import normalise
from tests.conftest import Ran, run_sweep
from tests.postgres_fixture import Server

MADE = Path(__file__).parent / "made_by_0_1_0"
THERE = "/home/ada/project"  # where it was made
NAME = "old"


@pytest.fixture
def call(tmp_path: Path, empty_url: str) -> Callable[..., Ran]:
    """Run a command on what was made, as if it had been made here."""
    texts = {path: path.read_text() for path in MADE.rglob("*") if path.is_file()}
    with_place = {path: text.replace(THERE, str(tmp_path)) for path, text in texts.items()}
    database = Database(empty_url)
    for statement in with_place[MADE / "tables.sql"].split(";\n"):
        if statement.strip():
            database.execute(statement.replace("%", "%%"), ())
    database.close()
    for path, text in with_place.items():
        inside = path.relative_to(MADE)
        place = (
            tmp_path / "runs" / NAME / inside.relative_to("folder")
            if (inside.parts[0] == "folder")
            else tmp_path / inside
        )
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.write_text(text)
        place.chmod(0o600)
    (tmp_path / "runs" / NAME / "storage.json").write_text(
        json.dumps({"url": normalise(empty_url)})
    )
    (tmp_path / "runs/.last").write_text(NAME)
    (tmp_path / "gate").touch()
    env = {"SWEEP_STORAGE": empty_url}
    return partial(run_sweep, runs=tmp_path / "runs", cwd=tmp_path, env=env)


def counts(call: Callable[..., Ran]) -> dict[str, int]:
    ran = call("status", "--json")
    assert ran.code == 0, ran
    found: dict[str, int] = json.loads(ran.out)["counts"]
    return {state: count for state, count in found.items() if count}


def version(url: str) -> int:
    database = Database(url)
    try:
        return tables.read_version(database)
    finally:
        database.close()


def test_they_are_read_brought_up_to_date_and_gone_on_with(
    call: Callable[..., Ran], empty_url: str
) -> None:
    assert version(empty_url) == 0
    assert counts(call) == {"complete": 3, "waiting": 3}
    rows = json.loads(call("collect", "--format", "json").out)
    before = {row["trial"]: row["value"] for row in rows if row["state"] == "complete"}
    assert len(before) == 3
    assert "done" in call("logs", "0").out
    assert call("report", "-o", "page.html").code == 0
    assert version(empty_url) == 0  # who looks changes nothing

    ran = call("launch", "study.yaml", "--wait")
    assert ran.code == 0, ran
    assert version(empty_url) == tables.VERSION
    assert counts(call) == {"complete": 6}
    rows = json.loads(call("collect", "--format", "json").out)
    assert {row["trial"]: row["value"] for row in rows}.items() >= before.items()
    # The two that were stopped go on from where they were.
    assert (
        "starts at step 1" in call("logs", "3").out or "starts at step 2" in call("logs", "3").out
    )
    assert call("rerun-best", "--wait").code in (0, 3)  # this training takes no seed


def test_those_of_a_newer_sweep_are_refused(
    call: Callable[..., Ran], empty_url: str, postgres_server: Server, tmp_path: Path
) -> None:
    database = Database(empty_url)
    comment = f"{tables.VERSION_COMMENT}{tables.VERSION + 1}"
    database.execute(f"COMMENT ON TABLE sweep_attempt IS '{comment}'")
    database.close()
    for command in (["status"], ["collect"], ["rerun-best"], ["stop"], ["launch", "study.yaml"]):
        ran = call(*command)
        assert ran.code == 1 and "made by a newer sweep" in ran.err, (command, ran)
        assert "pip install -U sweep-hpo" in ran.err
    assert version(empty_url) == tables.VERSION + 1
