"""A task prepares proposals beside its training: real processes, a real database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.storage import proposals
from sweep.storage.ledger import Ledger
from tests.chaos.scene import Scene
from tests.waiting import wait_for

pytestmark = pytest.mark.real


def test_proposals_are_there_before_their_trials(
    tmp_path: Path, runs: Path, sweep: Any, fresh_url: str
) -> None:
    """While four trainings wait one process prepares what comes next, which is taken; it has gone
    with the study."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=10, parallel=4, steps=3, gated=True)
    scene.write()
    scene.file.write_text(scene.file.read_text().replace("sampler: random", "sampler: tpe"))
    scene.launch()
    ledger = scene.open().ledger
    wait_for(lambda: _is_full(ledger), "four proposals")
    assert any("sweep.tasks.proposer" in one for one in scene.processes())
    scene.gate.touch()
    scene.wait()
    noted = proposals.read_noted(ledger.db, ledger.study_id)
    assert sorted(noted) == [4, 5, 6, 7, 8, 9]  # launch has laid out the others
    assert noted[4]["prepared"] and 1 <= noted[4]["behind"] <= 4
    counted = proposals.read_waits(ledger.db, ledger.study_id)
    assert counted.prepared + counted.made == 6
    shown = scene.status()["proposals"]
    assert (shown["prepared"], shown["made"]) == (counted.prepared, counted.made)
    found = sweep("collect", scene.name, "--format", "json", env=scene.env)
    rows = {row["trial"]: row for row in json.loads(found.out)}
    assert rows[4]["proposal"] == noted[4]
    assert "proposal" not in rows[0]
    scene.check()


def _is_full(ledger: Ledger) -> bool:
    _, waiting = proposals.look(ledger.db, ledger.study_id, 4)
    return [one.prepared is not None for one in waiting] == [True] * 4
