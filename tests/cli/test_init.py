"""``sweep init`` and then ``sweep launch`` of scripts as people have them, untouched between."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import collected
from tests.conftest import Sweep
from tests.studyfile.test_intake import SCRIPTS, Case, write_project

pytestmark = pytest.mark.real

TRIALS = 4
# Those that cannot run as they are, and what init says of each.
SAID = {
    "click with a required argument": "Replace EDIT_ME in the command: the script needs model.",
    "commands of a click group, each with options of its own": "Replace EDIT_ME in the command: "
    "the script needs data.",
    "HfArgumentParser": "Replace EDIT_ME in the command: the script needs --model_name.",
    "nothing to vary": "No flag to vary was found in the script",
}
RUNNING = [case for case in SCRIPTS if case.name not in SAID]
# What these need is there in any case; the others are tests/frameworks/test_scripts.py.
PLAIN = (
    "argparse in a module of the project",
    "argparse with an optional positional and a checkpoint to load",
    "click with an argument",
    "globals",
)


def init_and_launch(case: Case, sweep: Sweep, folder: Path) -> None:
    """Write a script's study by init and launch it: each of its trials has values of its own."""
    write_project(case, folder)
    ran = sweep("init", "train.py")
    assert ran.code == 0, ran.err
    sets = [f"trials={TRIALS}", "max_parallel=2", "executor=local", "sampler=random"]
    words = [word for one in sets for word in ("--set", one)]
    ran = sweep("launch", "study.yaml", "--wait", *words)
    assert ran.code == 0, ran.out + ran.err
    rows = collected(sweep, "--top", str(TRIALS))
    assert [row["state"] for row in rows] == ["complete"] * TRIALS
    assert len({json.dumps(row["params"], sort_keys=True) for row in rows}) == TRIALS
    assert all(row["value"] is not None for row in rows)


def test_most_of_the_scripts_run_as_they_are() -> None:
    assert len(RUNNING) >= 27
    assert SAID.keys() < {case.name for case in SCRIPTS}


@pytest.mark.parametrize(
    "case", [case for case in RUNNING if case.name in PLAIN], ids=lambda case: case.name
)
def test_init_and_launch(case: Case, sweep: Sweep, tmp_path: Path) -> None:
    init_and_launch(case, sweep, tmp_path)


@pytest.mark.parametrize("name", SAID)
def test_what_a_script_lacks_is_said(name: str, sweep: Sweep, tmp_path: Path) -> None:
    """Nothing is written as if it were fine: init names what is missing, and no trial is run."""
    write_project(next(case for case in SCRIPTS if case.name == name), tmp_path)
    ran = sweep("init", "train.py")
    assert SAID[name] in ran.out
    assert SAID[name] in re.sub(r"\n# (?:  )?", " ", (tmp_path / "study.yaml").read_text())
    if "EDIT_ME" in SAID[name] or name == "nothing to vary":
        ran = sweep("launch", "study.yaml")
        assert ran.code == 2 and "EDIT_ME still stands in it" in ran.err
