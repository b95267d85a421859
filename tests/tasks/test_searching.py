"""A slot whose trial has no parameters yet waits for the process that prepares them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.trial import Claim
from sweep.search.preparing import Preparer
from sweep.storage import PostgresStorage, proposals
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.tasks import searching
from sweep.tasks.patience import Patience
from sweep.tasks.searching import LeftBeforeProposal, Searching
from sweep.training.leave import Leave
from tests.search.test_preparing import claim, pass_time
from tests.search.test_propose import NUMBERS, make
from tests.storage import ledgers


class Process:
    """Stands for what prepares: does something each time that its task sees to it."""

    def __init__(self, does: Callable[[Process], None] = lambda _: None) -> None:
        self.is_wanted, self.has_failed, self.times = True, False, 0
        self._does = does

    def tend(self) -> None:
        self.times += 1
        self._does(self)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    db = Database(database_url)
    yield ledgers.make(db, make("tpe", NUMBERS, trials=14, max_parallel=4))
    db.close()


@pytest.fixture
def eleventh(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Claim:
    """One that was claimed without parameters, of a sampler that takes long to bring in."""
    monkeypatch.setattr(searching, "takes_long", lambda _: True)
    monkeypatch.setattr(searching, "is_there", lambda: False)
    for _ in range(10):
        claim(ledger)
    return claim(ledger)


def sample(ledger: Ledger, mine: Claim, process: Process, leave: Leave) -> dict[str, Any]:
    def storage(_: Claim) -> PostgresStorage:
        made = PostgresStorage(ledger.db)
        made.token, made.own = mine.token, mine.trial_id
        return made

    view: Any = SimpleNamespace(
        proposer=process, storage=storage, asked=lambda: None, has_proposed=False
    )
    context: Any = SimpleNamespace(study=ledger.study, ledger=ledger, say=print)
    return Searching(context, Patience(ledger.db, leave, print), view).sample(mine)


def is_prepared(ledger: Ledger, mine: Claim) -> bool:
    found: bool = proposals.read_noted(ledger.db, ledger.study_id)[mine.number]["prepared"]
    return found


def test_it_gets_what_is_prepared_for_it(ledger: Ledger, eleventh: Claim) -> None:
    one = Preparer(ledger.study, PostgresStorage(ledger.db, steps=False), ledger.study_id)
    process = Process(lambda self: one.step() and None if self.times == 3 else None)
    found = sample(ledger, eleventh, process, Leave(1.0, 1.0))
    assert found == PostgresStorage(ledger.db).get_trial(eleventh.trial_id).params != {}
    assert is_prepared(ledger, eleventh) and process.times == 3


def fail(process: Process) -> None:
    process.has_failed = True


def give_up(process: Process) -> None:
    process.is_wanted = False


@pytest.mark.parametrize("does", [fail, give_up])
def test_where_nothing_will_come_it_proposes_itself(
    ledger: Ledger, eleventh: Claim, does: Callable[[Process], None]
) -> None:
    process = Process(lambda self: does(self) if self.times == 2 else None)
    assert sample(ledger, eleventh, process, Leave(1.0, 1.0))
    assert not is_prepared(ledger, eleventh) and process.times == 2


def test_it_waits_only_so_long(
    ledger: Ledger, eleventh: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "WAIT_S", 0.3)
    process = Process()
    assert sample(ledger, eleventh, process, Leave(1.0, 1.0))
    assert not is_prepared(ledger, eleventh) and process.times >= 1


def test_it_does_not_wait_where_one_process_cannot_keep_up(
    ledger: Ledger, eleventh: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "typical_s", lambda *_: 0.5)
    process = Process()
    assert sample(ledger, eleventh, process, Leave(1.0, 1.0))
    assert process.times == 0


def test_nor_in_the_start(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trials get theirs by chance."""
    monkeypatch.setattr(searching, "takes_long", lambda _: True)
    monkeypatch.setattr(searching, "is_there", lambda: False)
    process, mine = Process(), [claim(ledger) for _ in range(5)][-1]
    assert sample(ledger, mine, process, Leave(1.0, 1.0))
    assert process.times == 0


def test_nor_for_one_that_hangs(ledger: Ledger, eleventh: Claim) -> None:
    proposals.lease(ledger.db, ledger.study_id, "a", begins=True)
    pass_time(ledger.db, proposals.HANGS_S + 4)
    process = Process()
    assert sample(ledger, eleventh, process, Leave(1.0, 1.0))
    assert process.times == 1


def test_nor_where_its_sampler_is_there(
    ledger: Ledger, eleventh: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "is_there", lambda: True)
    process = Process()
    assert sample(ledger, eleventh, process, Leave(1.0, 1.0))
    assert process.times == 0


def test_it_leaves_when_it_is_asked_to(ledger: Ledger, eleventh: Claim) -> None:
    leave = Leave(1.0, 1.0)

    def ask_to_leave(_: Process) -> None:
        leave.asked_s = time.time()

    with pytest.raises(LeftBeforeProposal):
        sample(ledger, eleventh, Process(ask_to_leave), leave)


def test_one_whose_answer_was_lost_waits_for_nothing(ledger: Ledger, eleventh: Claim) -> None:
    """Its parameters are there, though the database went away before it said so."""
    one = Preparer(ledger.study, PostgresStorage(ledger.db, steps=False), ledger.study_id)
    proposals.want(ledger.db, eleventh.token)
    one.step()
    assert proposals.take(ledger.db, ledger.study_id, eleventh.token, 4)
    process = Process()
    stored = PostgresStorage(ledger.db).get_trial(eleventh.trial_id).params
    assert sample(ledger, eleventh, process, Leave(1.0, 1.0)) == stored
    assert process.times == 0
