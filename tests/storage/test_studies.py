"""A study's own rows: its attributes, its turns, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sweep.core import attributes
from sweep.core.scheduler import Wave
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.studies import StudyState
from tests.storage.ledgers import do
from tests.study_rows import Row, Tried, fill, make_study


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    rows = [
        Row(values=[0.5], params={"lr": 0.1}, end={"outcome": "finished"}),
        Row("RUNNING", attempts=[Tried(None, reports=[(1, "acc", 0.5)])]),
    ]
    found = fill(database_url, make_study(), rows)
    with closing(found.db):
        yield found


def test_a_cancel_of_all_stays_noted(ledger: Ledger) -> None:
    """A task that clears the queue after it does not make it less; and for each job by itself."""

    def noted(job: str) -> str:
        return str(studies.read_attribute(db, study_id, attributes.CANCEL + job)["what"])

    db, study_id = ledger.db, ledger.study_id
    for what in (studies.WAITING_ONES, studies.ALL, studies.WAITING_ONES):
        studies.note_cancel(db, study_id, "7", what)
    studies.note_cancel(db, study_id, "8", studies.WAITING_ONES)
    assert (noted("7"), noted("8")) == (studies.ALL, studies.WAITING_ONES)


def test_attributes_are_read_by_how_their_keys_begin(ledger: Ledger) -> None:
    """Letter by letter: what a pattern of SQL takes for a wildcard is none."""
    db, study_id = ledger.db, ledger.study_id
    for key in ("sweep:a_b:2", "sweep:a_b:1", "sweep:axb:3", "sweep:a%:4"):
        studies.write_attribute(db, study_id, key, key[-1])
    assert studies.read_attributes(db, study_id, "sweep:a_b:") == {"1": "1", "2": "2"}
    assert studies.read_attributes(db, study_id, "sweep:a%") == {":4": "4"}
    assert studies.read_attributes(db, study_id + 1, "sweep:a") == {}


def test_an_attribute_is_written_once(ledger: Ledger) -> None:
    """Who comes later is told what it is."""
    assert studies.write_attribute_once(ledger.db, ledger.study_id, "k", 3) == 3
    assert studies.write_attribute_once(ledger.db, ledger.study_id, "k", 4) == 3


def test_waves_come_oldest_first(ledger: Ledger) -> None:
    waves = [Wave("t2", 1, 1, "slurm", 2.0), Wave("t1", 1, 1, "slurm", 1.0, over=True)]
    for wave in waves:
        studies.write_wave(ledger.db, ledger.study_id, wave)
    assert studies.read_waves(ledger.db, ledger.study_id) == waves[::-1]
    assert studies.read_waves(ledger.db, ledger.study_id, live_only=True) == waves[:1]


def test_what_a_later_version_wrote_more_is_passed_over(ledger: Ledger) -> None:
    """A row of a newer sweep is read as far as this one knows it."""
    db, study_id = ledger.db, ledger.study_id
    wave, state = Wave("t", 1, 1, "slurm", 1.0), StudyState(studies.HELD, "why")
    studies.write_attribute(db, study_id, attributes.WAVE + "t", vars(wave) | {"new": 1})
    studies.write_attribute(db, study_id, attributes.STATE, vars(state) | {"new": 1})
    assert studies.read_waves(db, study_id) == [wave]
    assert studies.read_state(db, study_id) == state


def test_a_deleted_study_leaves_nothing(ledger: Ledger, database_url: str) -> None:
    """Neither in Optuna's tables nor in ours; another study stays whole."""
    other = fill(database_url, make_study(name="letters"), [Row(values=[0.5], params={"lr": 0.1})])
    with closing(other.db):
        assert studies.list_names(other.db) == ["digits", "letters"]
        assert do(ledger, lambda: studies.delete_study(ledger.db, ledger.study_id))
        assert not do(ledger, lambda: studies.delete_study(ledger.db, ledger.study_id))
        assert studies.list_names(other.db) == ["letters"]
        tables = ("trials", "trial_params", "trial_values", "sweep_attempt")
        for table, left in zip(tables, (1, 1, 1, 1), strict=True):
            assert other.db.execute(f"SELECT count(*) FROM {table}") == [(left,)], table
        for table in ("trial_user_attributes", "sweep_metric"):
            assert other.db.execute(f"SELECT count(*) FROM {table}") == [(0,)], table
        assert other.db.execute("SELECT count(*) FROM study_directions") == [(1,)]


def test_a_turn_is_taken_once_within_its_time(ledger: Ledger, database_url: str) -> None:
    """By the database's clock; and by nobody while another one looks."""
    db, study_id = ledger.db, ledger.study_id
    assert do(ledger, lambda: studies.take_turn(db, study_id, 3600.0))
    assert not do(ledger, lambda: studies.take_turn(db, study_id, 3600.0))
    assert do(ledger, lambda: studies.take_turn(db, study_id, 0.0))
    with closing(Database(database_url)) as other, db.transaction():
        assert studies.take_turn(db, study_id, 0.0)
        with other.transaction():
            assert not studies.take_turn(other, study_id, 1e-9)


def test_a_stop_is_written_so_that_older_tasks_can_read_it(ledger: Ledger) -> None:
    """They take each field that they find, and know those of their own version only."""
    db, study_id = ledger.db, ledger.study_id
    for word in (studies.STOPPED, studies.DRAINING, studies.HELD):
        do(ledger, lambda word=word: studies.write_state(db, study_id, StudyState(word, "why")))
        found = studies.read_attribute(db, study_id, attributes.STATE)
        assert found == {"word": word, "reason": "why"}
        assert studies.read_state(db, study_id) == StudyState(word, "why")
    whole = StudyState(studies.ENDED, "", True, "target", 5.0)
    do(ledger, lambda: studies.write_state(db, study_id, whole))
    assert studies.read_state(db, study_id) == whole
