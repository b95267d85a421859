"""A launch asks Slurm little, and does not write what tasks of another version would misread."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sweep.control.launch import Launched, launch
from sweep.core.errors import BusyError, InputError
from sweep.core.paths import Runs
from sweep.core.scheduler import TASK_FORMAT, Wave
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from sweep.schedulers.slurm.text.queue import NAMED_FORMAT
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.studyfile import load
from tests.schedulers.scripted_slurm import ScriptedSlurm
from tests.toys import write_toy

pytestmark = pytest.mark.real

QUESTIONS = ("sacct", "sacctmgr", "scontrol", "sinfo", "squeue")
LIMITS = "lab|someone||||||||normal||lab|\n"


class Site:
    """A cluster that takes one array, whose single task waits for as long as ``lives``."""

    def __init__(self) -> None:
        self.name = ""
        self.lives = True
        self.slurm = ScriptedSlurm(sacctmgr=LIMITS, sbatch=self._take, squeue=self._list)

    def _take(self, argv: Sequence[str]) -> str:
        if "--test-only" in argv:
            return ""
        name = next(word for word in argv if word.startswith("--job-name=")).partition("=")[2]
        if name.endswith("-end"):
            return "8\n"
        self.name = name
        return "7\n"

    def _list(self, argv: Sequence[str]) -> str:
        if not self.name or not self.lives:
            return ""
        rows = [
            (self.name, "7|0|7|PENDING|20:00|N/A|2026-03-01T12:00:00||Resources"),
            (f"{self.name}-end", "8|N/A|8|PENDING|20:00|N/A|2026-03-01T12:00:00||Dependency"),
        ]
        if NAMED_FORMAT in argv:
            return "".join(f"{name}|{row}\n" for name, row in rows)
        return f"{rows[0][1]}\n"

    def asked(self) -> dict[tuple[str, ...], int]:
        """Return how often each question was asked, and forget them."""
        found = collections.Counter(map(tuple, self.slurm.asked))
        self.slurm.asked.clear()
        return {argv: count for argv, count in found.items() if argv[0] in QUESTIONS}


class Scene:
    """A toy study that is launched on such a site."""

    def __init__(self, folder: Path, url: str) -> None:
        self.file = write_toy(folder, trials=4, parallel=2, workdir=folder)
        self.runs = Runs(folder / "runs")
        self.url = url
        self.site = Site()

    def launch(self, *changes: str) -> Launched:
        study = load(self.file, ["executor=slurm", *changes])
        return launch(
            study,
            self.runs,
            lambda folder: SlurmScheduler(folder, study, os.environ, self.site.slurm),
            os.environ,
        )

    def waves(self, *, rewrite: int | None = None) -> list[Wave]:
        """Return the study's waves; first give each another format if one is named."""
        with closing(Database(self.url)) as db:
            study_id = studies.find_study(db, "toy")
            assert study_id is not None
            for wave in studies.read_waves(db, study_id):
                if rewrite is not None:
                    changed = dataclasses.replace(wave, format=rewrite)
                    studies.write_wave(db, study_id, changed)
            return studies.read_waves(db, study_id)

    def trials(self) -> int:
        with closing(Database(self.url)) as db:
            return int(db.execute("SELECT COUNT(*) FROM trials")[0][0])


@pytest.fixture
def scene(tmp_path: Path, fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("SWEEP_STORAGE", fresh_url)
    return Scene(tmp_path, fresh_url)


def test_each_question_is_asked_once(scene: Scene) -> None:
    """By a first launch, and by one over an array that lives."""
    assert scene.launch().submitted
    asked = scene.site.asked()
    assert set(asked.values()) == {1}, asked
    assert sorted(argv[:3] for argv in asked) == [
        ("sacctmgr", "-nP", "show"),
        ("scontrol", "show", "config"),
        ("scontrol", "show", "partition"),
    ]
    again = scene.launch("trials=6")
    assert (again.submitted, again.added, again.wave and again.wave.job) == (False, 2, "7")
    asked = scene.site.asked()
    assert set(asked.values()) == {1}, asked
    # The array's tasks, whose array it is, and what stands beside it.
    assert sum(argv[0] == "squeue" for argv in asked) == 3
    assert sum(argv[0] == "sacct" for argv in asked) == 0, "the queue has all of them"


@pytest.mark.parametrize(
    ("format", "which"), [(0, "an older version"), (TASK_FORMAT + 1, "a newer version")]
)
def test_tasks_of_another_version_are_drained_first(scene: Scene, format: int, which: str) -> None:
    """Nothing is written while they live; afterwards the study goes on."""
    scene.launch()
    scene.waves(rewrite=format)
    before = (scene.runs.study("toy").study).read_text()
    with pytest.raises(BusyError) as caught:
        scene.launch("trials=6")
    assert f"Tasks of {which} of sweep serve the study 'toy' (job 7)" in caught.value.message
    assert "sweep stop toy --drain" in caught.value.hint
    assert (scene.runs.study("toy").study).read_text() == before
    assert [(wave.format, wave.over) for wave in scene.waves()] == [(format, False)]
    assert scene.trials() == 4
    scene.site.lives = False
    launched = scene.launch("trials=6")
    assert (launched.submitted, launched.added, scene.trials()) == (True, 2, 6)
    assert [wave.format for wave in scene.waves()] == [format, TASK_FORMAT]


def test_a_study_that_could_not_be_submitted_is_gone(scene: Scene) -> None:
    """Rows and folder, also where its folder could not be written."""
    blocked = scene.runs.study("toy").root
    scene.runs.root.mkdir()
    blocked.write_text("")  # a file where the folder is to be
    with pytest.raises(InputError, match="is not a folder"):
        scene.launch()
    assert scene.trials() == 0
    blocked.unlink()
    assert scene.launch().created
