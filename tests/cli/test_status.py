"""``sweep status`` of a study that has ended."""

from __future__ import annotations

import json

from tests.cli.commands import collected
from tests.conftest import Sweep


def test_status_json_has_the_contracts_keys(finished: Sweep) -> None:
    """`status --json` gives name, state, counts of the six states, best and tasks."""
    ran = finished("status", "--json")
    assert (ran.code, ran.err) == (0, "")
    got = json.loads(ran.out)
    assert (got["name"], got["state"]) == ("toy", "finished")
    assert got["counts"] == {
        "waiting": 0,
        "running": 0,
        "complete": 5,
        "pruned": 0,
        "failed": 0,
        "cancelled": 0,
    }
    assert got["tasks"] == {"pending": 0, "running": 0}
    (best,) = collected(finished, "--top", "1")
    assert got["best"] == {key: best[key] for key in ("trial", "value", "params")}


def test_status_shows_no_colours_in_a_pipe(finished: Sweep) -> None:
    """Where no terminal is, no escape sequence is printed."""
    ran = finished("status")
    assert ran.code == 0
    assert "5 of 5 trials have ended" in ran.out
    assert "\x1b" not in ran.out + ran.err
