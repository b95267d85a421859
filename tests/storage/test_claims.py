"""Claims keep to max_parallel: so many attempts of a study live at once, and no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from sweep.core.errors import NoRoom
from sweep.core.outcomes import CROWDED, FAULTED, INTERRUPTED
from sweep.core.study import Choice
from sweep.core.trial import Claim, End, Place
from sweep.storage import locks, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.studies import StudyState
from tests.storage.ledgers import do, make
from tests.study_rows import make_study
from tests.waiting import wait_for

STUDY = replace(make_study(trials=8), max_parallel=3)
PLACE = Place("job", 0, "node", "boot")
CLAIMERS = 8


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with closing(Database(database_url)) as database:
        yield database


@pytest.fixture
def ledger(db: Database) -> Ledger:
    return make(db, STUDY, limited=True)


def claim(ledger: Ledger, token: str, gone: int = 0) -> Claim | None:
    return ledger.db.retry(lambda _: ledger.claim(token, PLACE, gone))


def fill_up(ledger: Ledger) -> None:
    for number in range(3):
        assert claim(ledger, f"t{number}")


def has_room(ledger: Ledger, token: str = "more", gone: int = 0) -> bool:
    try:
        return claim(ledger, token, gone) is not None
    except NoRoom:
        return False


def limit(ledger: Ledger, most: int | None) -> None:
    """Do what another launch does."""
    study = replace(STUDY, max_parallel=most)
    do(ledger, lambda: studies.write_specification(ledger.db, ledger.study_id, study))


def test_one_more_than_max_parallel_is_refused(ledger: Ledger) -> None:
    fill_up(ledger)
    for _ in range(2):
        with pytest.raises(NoRoom):
            claim(ledger, "more")
    assert ledger.count_attempts() == 3
    assert ledger.count_states() == {"RUNNING": 3, "WAITING": 5}


@pytest.mark.parametrize("outcome", ["finished", "interrupted"])
def test_an_end_makes_room(ledger: Ledger, outcome: str) -> None:
    """However it ended: an interrupted trial goes on before others begin."""
    fill_up(ledger)
    end = End(outcome)
    if outcome == "finished":
        do(ledger, lambda: ledger.finish("t1", end, "complete", [0.5]))
    else:
        do(ledger, lambda: ledger.leave("t1", end, None))
    found = claim(ledger, "more")
    assert found is not None
    assert (found.number, found.attempt) == ((3, 1) if outcome == "finished" else (1, 2))
    assert not has_room(ledger, "still more")


def test_another_launch_changes_it(ledger: Ledger) -> None:
    """Tasks that run already keep to it, raised, lowered or gone."""
    fill_up(ledger)
    limit(ledger, 4)
    assert has_room(ledger, "a")
    assert not has_room(ledger, "b")
    limit(ledger, 2)
    do(ledger, lambda: ledger.leave("a", End("interrupted"), None))
    do(ledger, lambda: ledger.leave("t0", End("interrupted"), None))
    assert not has_room(ledger, "b")
    do(ledger, lambda: ledger.leave("t1", End("interrupted"), None))
    assert has_room(ledger, "b")
    limit(ledger, None)
    assert all(has_room(ledger, f"c{number}") for number in range(3))


def test_a_repeat_finds_its_own(ledger: Ledger) -> None:
    """The answer to the claim that filled the last place was lost."""
    fill_up(ledger)
    again = claim(ledger, "t2")
    assert again is not None
    assert (again.number, again.attempt) == (2, 1)


def test_another_study_does_not_count(ledger: Ledger) -> None:
    fill_up(ledger)
    other = make(ledger.db, replace(STUDY, name="other"), limited=True)
    assert all(has_room(other, f"o{number}") for number in range(3))
    assert not has_room(other, "o3")


def test_attempts_whose_tasks_are_gone_do_not_count(ledger: Ledger) -> None:
    """One of them makes room for one."""
    fill_up(ledger)
    assert has_room(ledger, "a", gone=1)
    assert not has_room(ledger, "b", gone=1)


def test_where_nothing_is_left_there_is_nothing_to_wait_for(ledger: Ledger) -> None:
    """All trials run or are final: a task that finds no room would wait for nothing."""
    limit(ledger, None)
    assert all(has_room(ledger, f"t{number}") for number in range(8))
    limit(ledger, 3)
    assert claim(ledger, "more") is None


def test_a_stopped_study_is_not_waited_for(ledger: Ledger) -> None:
    fill_up(ledger)
    stopped = StudyState(studies.STOPPED, "by hand")
    do(ledger, lambda: studies.write_state(ledger.db, ledger.study_id, stopped))
    assert claim(ledger, "more") is None


def test_promotion_keeps_to_it(db: Database) -> None:
    """Trials that are promoted are claimed otherwise."""
    options = {"min_resource": 1, "max_resource": 9}
    study = replace(STUDY, pruner=Choice("promotion", options))
    ledger = make(db, study, limited=True)
    fill_up(ledger)
    assert not has_room(ledger)
    do(ledger, lambda: ledger.leave("t0", End("interrupted"), None))
    assert has_room(ledger)


@pytest.mark.parametrize("pruner", ["none", "promotion"])
def test_many_at_once(db: Database, database_url: str, pruner: str) -> None:
    """Each counts those that came before it: of eight that claim together three get a trial."""
    options = {"min_resource": 1, "max_resource": 9} if pruner == "promotion" else {}
    ledger = make(db, replace(STUDY, pruner=Choice(pruner, options)), limited=True)
    together = threading.Barrier(CLAIMERS)

    def one(number: int) -> bool:
        with closing(Database(database_url)) as own:
            own.connect()
            together.wait()
            return has_room(Ledger(own, ledger.study_id, ledger.study), f"t{number}")

    with ThreadPoolExecutor(CLAIMERS) as pool:
        assert sum(pool.map(one, range(CLAIMERS))) == 3
    assert ledger.count_attempts() == 3


@pytest.mark.parametrize("limited", [True, False])
def test_claims_wait_for_each_other_only_where_there_is_a_limit(
    db: Database, database_url: str, limited: bool
) -> None:
    ledger = make(db, STUDY, limited=limited)
    got = threading.Event()

    def one() -> None:
        with closing(Database(database_url)) as own:
            assert claim(Ledger(own, ledger.study_id, STUDY), "t")
            got.set()

    def waits() -> bool:
        sql = "SELECT 1 FROM pg_locks WHERE NOT granted AND classid = %s AND objid = %s"
        return bool(db.execute(sql, (locks.CLAIM, ledger.study_id)))

    with db.transaction():
        locks.hold(db, locks.CLAIM, ledger.study_id)
        thread = threading.Thread(target=one)
        thread.start()
        if limited:
            wait_for(waits, "the claim to wait")
            assert not got.is_set()
        else:
            wait_for(got.is_set, "the claim")
    thread.join()
    assert got.is_set()


def test_what_is_to_be_alone_comes_last(ledger: Ledger) -> None:
    """Others would have to leave the GPU for it: it waits until nothing else is left."""
    limit(ledger, None)
    for number in range(8):
        assert claim(ledger, f"t{number}")
    for token, outcome in (("t0", CROWDED), ("t1", INTERRUPTED), ("t2", FAULTED)):
        do(ledger, lambda t=token, o=outcome: ledger.leave(t, End(o), None))
    found = [claim(ledger, token) for token in ("a", "b", "c")]
    assert [(c.number, c.attempt, c.is_alone) for c in found if c] == [
        (1, 2, False),
        (0, 2, True),
        (2, 2, True),
    ]
    again = claim(ledger, "b")  # an answer that was lost
    assert again is not None and again.is_alone
    do(ledger, lambda: ledger.leave("b", End(INTERRUPTED), None))
    later = claim(ledger, "d")  # it stays so
    assert later is not None and (later.number, later.attempt, later.is_alone) == (0, 3, True)
    assert claim(ledger, "e") is None


def test_room_is_what_could_be_claimed(ledger: Ledger) -> None:
    """Trials that wait and those that are to go on, as far as max_parallel lets; none once the
    study is stopped."""

    def room() -> int:
        return ledger.db.retry(lambda _: ledger.room())

    assert room() == 3
    claim(ledger, "a")
    claim(ledger, "b")
    assert room() == 1
    limit(ledger, None)
    assert room() == 6
    do(ledger, lambda: ledger.leave("a", End(INTERRUPTED), None))
    assert room() == 7
    limit(ledger, 1)
    assert room() == 0
    limit(ledger, 5)
    do(
        ledger,
        lambda: studies.write_state(ledger.db, ledger.study_id, StudyState(studies.STOPPED, "")),
    )
    assert room() == 0
