"""A task prepares proposals beside its training: real processes, a real database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.storage import proposals
from sweep.storage.ledger import Ledger
from tests.chaos.ground import OWN_SEARCH
from tests.chaos.scene import Scene, kill
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


def proposers(scene: Scene) -> list[int]:
    return [int(one.split()[0]) for one in scene.processes() if "sweep.tasks.proposer" in one]


def _is_full(ledger: Ledger) -> bool:
    _, waiting = proposals.look(ledger.db, ledger.study_id, 4)
    return [one.prepared is not None for one in waiting] == [True] * 4
