"""``sweep list``: all studies of a database, and what is odd about their folders."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna

from sweep.core.attributes import HOST
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.optuna_storage import PostgresStorage
from tests.cli.commands import wait_for_runners
from tests.conftest import Sweep
from tests.toys import write_toy


def listed(sweep: Sweep) -> dict[str, Any]:
    ran = sweep("list", "--json")
    assert ran.code == 0, ran.err
    return {line["name"]: line for line in json.loads(ran.out)}


def test_all_studies_are_listed(sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str) -> None:
    """State, counts, age and folder; folders that are gone or elsewhere; a notebook's study."""
    ran = sweep("list")
    assert (ran.code, ran.out) == (0, "no studies\n")
    assert sweep("launch", write_toy(tmp_path, trials=2), "--wait").code == 0
    for name in ("gone", "elsewhere"):
        path = write_toy(tmp_path, name=name, trials=1, file=f"{name}.yaml")
        assert sweep("launch", path, "--wait").code == 0
        wait_for_runners(runs / name)
        shutil.rmtree(runs / name)
    with closing(Database(fresh_url)) as db:
        study_id = studies.find_study(db, "elsewhere")
        assert study_id is not None
        assert studies.read_attribute(db, study_id, HOST)
        studies.write_attribute(db, study_id, HOST, "login7")
    optuna.create_study(study_name="notebook", storage=PostgresStorage(fresh_url))
    found = listed(sweep)
    assert sorted(found) == ["elsewhere", "gone", "notebook", "toy"]
    toy = found["toy"]
    assert (toy["state"], toy["trials"], toy["counts"]["complete"]) == ("finished", 2, 2)
    assert (toy["folder"], toy["mark"]) == (str(runs / "toy"), "")
    assert toy["launched"] <= toy["active"]
    assert found["gone"]["mark"] == "folder gone"
    assert found["elsewhere"]["mark"] == "on login7, or gone"
    assert (found["notebook"]["state"], found["notebook"]["folder"]) == ("not sweep's", None)
    ran = sweep("list")
    assert ran.code == 0
    rows = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert "2/2" in rows["toy"] and "2 complete" in rows["toy"]
    assert "on login7, or gone" in sweep("list", "--storage", fresh_url).out
    assert "p@ss" not in ran.out + ran.err


def test_a_study_whose_folder_was_deleted_says_so(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """In each command, with how to start over; launched again it goes on with what is known."""
    path = write_toy(tmp_path, trials=2)
    assert sweep("launch", path, "--wait").code == 0
    wait_for_runners(runs / "toy")
    shutil.rmtree(runs / "toy")
    for words in (
        ["status"],
        ["collect"],
        ["logs", "0"],
        ["stop"],
        ["report"],
        ["rerun-best"],
        ["clean"],
        ["add", "--point", "x=0.5"],
    ):
        ran = sweep(*words)
        assert ran.code == 2, (words, ran)
        assert f"The folder {runs / 'toy'} of the study 'toy' was deleted" in ran.err, words
        assert "Start over: sweep remove toy, then sweep launch" in ran.err
    ran = sweep("launch", path)
    assert ran.code == 0 and "was deleted since" in ran.out
    assert "all trials have ended" in ran.out
    assert sweep("collect").code == 0
    wait_for_runners(runs / "toy")
    shutil.rmtree(runs / "toy")
    assert sweep("remove", "toy", "--yes").out == "study toy: removed\n"
    assert "study toy: 2 trials, in" in sweep("launch", path, "--wait").out
