"""A folder that the database does not know is not taken for the study's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sweep.control import identity
from sweep.core.attributes import IDENTITY
from sweep.core.errors import StudyChangedError
from sweep.core.paths import Runs, StudyFolder
from sweep.storage import access, studies
from sweep.storage.connection import Database
from tests.cli.commands import wait_for_runners
from tests.conftest import Sweep
from tests.storage import ledgers
from tests.study_rows import make_study
from tests.toys import write_toy

pytestmark = pytest.mark.real


def collect(sweep: Sweep) -> dict[int, float]:
    rows = json.loads(sweep("collect", "toy", "--format", "json").out)
    return {row["trial"]: row["value"] for row in rows}


def test_what_a_launch_says_and_does(
    sweep: Sweep, tmp_path: Path, runs: Path, fresh_url: str
) -> None:
    """Another storage, then the database removed: refused. On request the old folder is moved."""
    study = write_toy(tmp_path, trials=2)
    assert sweep("launch", study, "--wait").code == 0
    before = collect(sweep)
    ran = sweep("launch", study, "--wait", env={"SWEEP_STORAGE": fresh_url})
    assert ran.code == 2
    assert f"embedded PostgreSQL in {runs}/.postgres; this launch would put it into" in ran.err
    assert fresh_url.rpartition("/")[2].partition("?")[0] in ran.err
    assert collect(sweep) == before

    wait_for_runners(runs / "toy")  # its finaliser would start the server anew
    assert sweep("db", "stop").code == 0
    shutil.rmtree(runs / ".postgres")
    ran = sweep("launch", study, "--set", "seed=8")
    assert ran.code == 2
    assert f"embedded PostgreSQL in {runs}/.postgres, which does not hold it" in ran.err
    assert "--set-aside" in ran.err
    assert not (runs / ".postgres").exists()

    ran = sweep("launch", study, "--set", "seed=8", "--wait", "--set-aside")
    assert ran.code == 0, ran.err
    assert f"is now {runs}/.aside/toy" in ran.out
    assert len(list((runs / ".aside/toy/trials").glob("*/attempts/1/metrics.jsonl"))) == 2
    after = collect(sweep)
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())

    # A trial's folder that only the disk knows, as after a restored backup.
    folder = runs / "toy/trials/00002/attempts/1"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints/last").write_text("1")
    (folder / "metrics.jsonl").write_text('{"step": 9, "metrics": {"score": 5.0}}\n')
    ran = sweep("launch", study, "--set", "seed=8", "--set", "trials=3", "--wait")
    assert ran.code == 0, ran.err
    assert collect(sweep)[2] < 1.0
    assert "starts at step 0" in (folder / "log.txt").read_text()
    assert (folder.parent / "aside/1/metrics.jsonl").is_file()


class Scene:
    """A study in a database, and a folder."""

    def __init__(self, runs: Path, url: str) -> None:
        self.runs = Runs(runs)
        self.url = url
        self.db = Database(url)
        self.study = make_study(name="toy")
        self.folder: StudyFolder = self.runs.study("toy")

    def look(self, study_id: int | None, *, url: str = "", set_aside: bool = False) -> list[str]:
        settled = identity.Settled(
            self.study, self.folder, self.runs, url or self.url, set_aside=set_aside
        )
        changed = settled.look(self.db, study_id)
        if study_id is not None:
            self.folder.root.mkdir(exist_ok=True)
            settled.mark(self.db, study_id)
        return changed

    def launch(self) -> int:
        """Make the study and what a launch leaves in its folder."""
        study_id = ledgers.make(self.db, self.study).study_id
        self.folder.root.mkdir(parents=True)
        assert self.look(study_id) == []
        access.remember(self.folder, self.url, self.runs)
        (self.folder.root / "trials").mkdir()
        return study_id

    def row(self, study_id: int) -> str | None:
        found = studies.read_attribute(self.db, study_id, IDENTITY)
        return None if found is None else str(found)


@pytest.fixture
def scene(runs: Path, fresh_url: str) -> Scene:
    return Scene(runs, fresh_url)


def test_row_and_folder_of_one_study(scene: Scene) -> None:
    study_id = scene.launch()
    assert scene.look(study_id) == []
    assert identity.read_mark(scene.folder) == scene.row(study_id)


def test_a_server_that_was_moved(scene: Scene) -> None:
    """The same rows at another address are the same study; that it changed is said, masked."""
    study_id = scene.launch()
    moved = "postgresql+psycopg2://me:geheim@elsewhere:5432/x"
    (changed,) = scene.look(study_id, url=moved)
    assert changed.startswith("storage: ") and changed.endswith("me:***@elsewhere:5432/x now")


def test_a_name_that_was_used_again(scene: Scene) -> None:
    """Its row was deleted and another of its name made: not the folder's study."""
    study_id = scene.launch()
    scene.db.execute(
        "UPDATE study_system_attributes SET value_json = %s WHERE key = %s", ('"another"', IDENTITY)
    )
    with pytest.raises(StudyChangedError, match="does not hold it"):
        scene.look(study_id)
    (changed,) = scene.look(study_id, set_aside=True)
    assert changed.endswith(f"is now {scene.runs.aside}/toy")
    assert identity.read_mark(scene.folder) == "another"
    assert [p.name for p in scene.folder.root.iterdir()] == ["identity.json"]


def test_a_study_of_an_earlier_version(scene: Scene) -> None:
    """Neither has an identity: both get one, where the storage is the same as before."""
    study_id = scene.launch()
    scene.folder.identity.unlink()
    scene.db.execute("DELETE FROM study_system_attributes WHERE key = %s RETURNING 1", (IDENTITY,))
    with pytest.raises(StudyChangedError, match=r"elsewhere:5432/x, which does not hold it"):
        scene.look(study_id, url="postgresql+psycopg2://me:geheim@elsewhere:5432/x")
    assert scene.look(study_id) == []
    assert identity.read_mark(scene.folder) == scene.row(study_id) is not None


def test_a_folder_without_a_mark(scene: Scene) -> None:
    """One of an earlier version, and the row of a later study: not the same."""
    study_id = scene.launch()
    scene.folder.identity.unlink()
    with pytest.raises(StudyChangedError):
        scene.look(study_id)


def test_room_that_was_made_for_a_study_is_nobodys(
    sweep: Sweep, tmp_path: Path, runs: Path, fresh_url: str
) -> None:
    """An empty ``trials`` folder (a disk of its own, say) is no study's; one with a trial is."""
    study = write_toy(tmp_path, trials=1)
    trials = runs / "toy" / "trials"
    (trials / "00000").mkdir(parents=True)
    ran = sweep("launch", study, env={"SWEEP_STORAGE": fresh_url})
    assert ran.code == 2 and "--set-aside" in ran.err
    (trials / "00000").rmdir()
    ran = sweep("launch", study, "--wait", env={"SWEEP_STORAGE": fresh_url})
    assert ran.code == 0, ran.err
