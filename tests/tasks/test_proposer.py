"""A task prepares proposals beside its training: real processes, a real database."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.attributes import PROPOSER, STAND_BY
from sweep.storage import proposals, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.tasks.proposer import LifeSign
from tests.chaos.ground import OWN_SEARCH
from tests.chaos.scene import Scene, kill
from tests.search.test_propose import NUMBERS, make
from tests.storage import ledgers
from tests.waiting import wait_for

pytestmark = pytest.mark.real


# The user's own asked ahead is in tests/search/test_preparing.py, too.
OWN = pytest.param("own_search:Nearer", 0, marks=pytest.mark.long)


@pytest.mark.parametrize(("sampler", "laid_out"), [("tpe", 4), OWN])
def test_proposals_are_there_before_their_trials(
    tmp_path: Path, runs: Path, sweep: Any, fresh_url: str, sampler: str, laid_out: int
) -> None:
    """While four trainings wait one process prepares what comes next, which is taken; where it is
    killed another one does. It has gone with the study."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=10, parallel=4, steps=3, gated=True)
    scene.write()
    scene.file.write_text(
        scene.file.read_text().replace("sampler: random", f'sampler: "{sampler}"')
    )
    (tmp_path / OWN_SEARCH.name).write_text(OWN_SEARCH.read_text())
    scene.launch()
    ledger = scene.open().ledger
    wait_for(lambda: _is_full(ledger), "four proposals")
    first = proposers(scene)
    for one in first:
        kill(one)
    wait_for(lambda: set(proposers(scene)) - set(first), "another after it was killed")
    scene.gate.touch()
    scene.wait()
    noted = proposals.read_noted(ledger.db, ledger.study_id)
    assert sorted(noted) == list(range(laid_out, 10))  # launch has laid out the others
    assert noted[4]["prepared"] and 1 <= noted[4]["behind"] <= 4
    assert noted[4]["sampler"] == sampler
    counted = proposals.read_waits(ledger.db, ledger.study_id)
    assert counted.prepared + counted.made == 10 - laid_out
    shown = scene.status()["proposals"]
    assert (shown["prepared"], shown["made"]) == (counted.prepared, counted.made)
    found = sweep("collect", scene.name, "--format", "json", env=scene.env)
    rows = {row["trial"]: row for row in json.loads(found.out)}
    assert rows[4]["proposal"] == noted[4]
    assert ("proposal" in rows[0]) == (laid_out == 0)
    scene.check()


@pytest.mark.parametrize("how", [pytest.param("proposer", marks=pytest.mark.long), "task"])
def test_one_stands_by_where_torch_is_to_be_imported(
    tmp_path: Path, runs: Path, sweep: Any, fresh_url: str, how: str
) -> None:
    """It has torch already when the one that prepares, or its whole task, is killed, and takes
    over; then another one stands by. Of the tasks none imports it."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=16, parallel=4, steps=3, gated=True)
    scene.write()
    scene.file.write_text(scene.file.read_text().replace("sampler: random", "sampler: gp"))
    scene.launch()
    ledger = scene.open().ledger

    def has_torch(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
        return False

    def both() -> tuple[int, int] | None:
        one, other = (holder(scene, ledger, key) for key in (PROPOSER, STAND_BY))
        if one is None or other is None or one == other or not _is_full(ledger):
            return None
        return (one, other) if has_torch(one) and has_torch(other) else None

    found = wait_for(both, "one that prepares, and one that stands by")
    assert found is not None
    first, second = found
    tasks = [_parent(pid) for pid in (first, second)]
    kill(first if how == "proposer" else _parent(first))
    wait_for(lambda: holder(scene, ledger, PROPOSER) == second, "the one that stood by")
    assert not any(map(has_torch, tasks))
    old = (None, first, second)
    wait_for(lambda: holder(scene, ledger, STAND_BY) not in old, "another one that stands by")
    scene.gate.touch()
    scene.wait()
    noted = proposals.read_noted(ledger.db, ledger.study_id)
    assert all(noted[number]["prepared"] for number in range(4, 8))
    scene.check()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def holder(scene: Scene, ledger: Ledger, key: str) -> int | None:
    """Return the process that has a lease, where it has been started."""
    lease = studies.read_attribute(ledger.db, ledger.study_id, key)
    for one in scene.processes():
        if "sweep.tasks.proposer" in one and lease and lease["token"] in one:
            return int(one.split()[0])
    return None


@pytest.fixture
def two(database_url: str) -> Iterator[list[Database]]:
    found = [Database(database_url), Database(database_url)]
    yield found
    for db in found:
        db.close()


def test_whose_turn_it_is(two: list[Database]) -> None:
    """The first one prepares at once, and nobody else brings a sampler in until it has its own; the
    next one stands by until the first is gone."""
    ledger = ledgers.make(two[0], make("gp", NUMBERS, trials=12, max_parallel=4))
    first, second = (
        LifeSign(_preparer(db, ledger), token, stands_by=True)
        for db, token in zip(two, "ab", strict=True)
    )
    assert first.may_go_on() and first.turn.is_set()
    assert not second.may_go_on()
    first.is_ready = True
    assert first.may_go_on()
    assert second.may_go_on() and not second.turn.is_set()
    second.is_ready = True
    assert second.may_go_on() and not second.turn.is_set()
    proposals.end_lease(two[0], ledger.study_id, "a")
    assert second.may_go_on() and second.turn.is_set()
    assert not first.may_go_on()
    third = LifeSign(_preparer(two[0], ledger), "c", stands_by=True)
    assert third.may_go_on() and not third.turn.is_set()


def test_one_that_cannot_stand_by_is_over(two: list[Database]) -> None:
    """Its sampler is there in a moment: where another prepares there is nothing to do."""
    ledger = ledgers.make(two[0], make("tpe", NUMBERS, trials=12, max_parallel=4))
    first, second = (
        LifeSign(_preparer(db, ledger), token) for db, token in zip(two, "ab", strict=True)
    )
    assert first.may_go_on() and first.turn.is_set()
    assert not second.may_go_on() and not second.turn.is_set()


def _preparer(db: Database, ledger: Ledger) -> Any:
    storage = SimpleNamespace(database=db)
    return SimpleNamespace(storage=storage, study_id=ledger.study_id, has_begun=True)


def proposers(scene: Scene) -> list[int]:
    return [int(one.split()[0]) for one in scene.processes() if "sweep.tasks.proposer" in one]


def _is_full(ledger: Ledger) -> bool:
    _, waiting = proposals.look(ledger.db, ledger.study_id, 4)
    return [one.prepared is not None for one in waiting] == [True] * 4
