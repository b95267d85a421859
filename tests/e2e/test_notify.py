"""A study tells its user by a command of his what has become of it, once, from real tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.commands import wait_for
from tests.conftest import Sweep
from tests.toys import write_toy
from tests.waiting import text_of


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(folder / "told").splitlines()]


def notify(folder: Path) -> str:
    """Return the key of a study file, and what it tells goes into a file."""
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
    return json.dumps({"command": ["python3", "-c", code, str(folder / "told")]})


def test_two_tasks_and_a_finaliser_tell_once(sweep: Sweep, tmp_path: Path) -> None:
    """Of the end; a relaunch tells nothing again, and one with more trials does once they end."""
    study = write_toy(tmp_path, trials=3, notify=notify(tmp_path))
    assert sweep("launch", study, "--wait").code == 0
    wait_for(lambda: told(tmp_path), "the end to be told")
    assert sweep("launch", study, "--wait").code == 0
    assert sweep("launch", study, "--wait", "--set", "trials=4").code == 0
    wait_for(lambda: len(told(tmp_path)) > 1, "the second end to be told")
    first, second = told(tmp_path)
    assert (first["event"], first["counts"]["complete"]) == ("ended", 3)
    assert (second["event"], second["counts"]["complete"]) == ("ended", 4)
    best = json.loads(sweep("status", "--json").out)["best"]
    assert second["best"] == best


def test_a_held_study_tells_why(sweep: Sweep, tmp_path: Path) -> None:
    """By the task that met it."""
    study = write_toy(tmp_path, trials=4, command="[python, -c, 'raise SystemExit(7)']")
    study.write_text(f"{study.read_text()}notify: {notify(tmp_path)}\n")
    assert sweep("launch", study, "--wait").code == 1
    wait_for(lambda: told(tmp_path), "the hold to be told")
    (held,) = told(tmp_path)
    assert held["event"] == "held" and "7" in held["reason"]
    assert held["best"] is None
