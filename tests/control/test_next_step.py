"""Where an attempt goes on: after the last report that its checkpoint has seen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.control.next_step import find_next_step
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.study import Objective
from sweep.core.trial import End, Place, Report
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training.attempt_files import make_folder
from tests.storage.ledgers import do, make
from tests.storage.test_ledger import STUDY


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    database = Database(database_url)
    yield make(database, STUDY)
    database.close()


class Story:
    """One trial's attempts: what they reported and saved, and when (seconds, by our clock)."""

    def __init__(self, ledger: Ledger, root: Path) -> None:
        self.ledger = ledger
        self.folder = StudyFolder(root)
        self.own: AttemptFolder
        self.resumed: Path | None = None

    def begin(self, resume: Path | None = None) -> int:
        """Begin the next attempt; return at which step it goes on."""
        token = f"t{self.ledger.count_attempts()}"
        claim = do(self.ledger, lambda: self.ledger.claim(token, Place("job", 0, "node1")))
        self.own = self.folder.attempt(claim.number, claim.attempt)
        make_folder(self.own, token)
        self.token = token
        step = 0
        if resume is not None:
            attempt = self.ledger.attempts(claim.trial_id)[-1]
            step = find_next_step(self.ledger, self.folder, attempt, resume, self.own)
        resumed = (str(resume), "ab" * 32) if resume else None
        do(self.ledger, lambda: self.ledger.started(token, 99, resumed))
        return step

    def log(self, **at: float) -> None:
        """Report at steps (``_3=1.5``: step 3 at 1.5 s)."""
        reports = [Report(int(name[1:]), when, {"loss": 1.0}) for name, when in at.items()]
        do(self.ledger, lambda: self.ledger.record(self.token, reports))

    def save(self, name: str, when_s: float) -> Path:
        path = self.own.checkpoints / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, (when_s, when_s))
        return path

    def end(self) -> None:
        do(self.ledger, lambda: self.ledger.leave(self.token, End("interrupted", "why"), None))


@pytest.fixture
def story(ledger: Ledger, tmp_path: Path) -> Story:
    return Story(ledger, tmp_path)


def test_after_what_the_checkpoint_has_seen(story: Story) -> None:
    """Reports that came after it are made again; their steps are given again."""
    assert story.begin() == 0
    story.log(_0=100.5, _1=101.5, _2=102.5)
    path = story.save("last.pt", 101.75)
    story.end()
    assert story.begin(path) == 2


def test_a_report_and_a_save_at_once(story: Story) -> None:
    """A file system's clock ticks: a file may look older than a report made just before."""
    story.begin()
    story.log(_0=100.5, _1=101.504)
    path = story.save("last.pt", 101.5)
    story.end()
    assert story.begin(path) == 2


def test_the_name_of_several_files(story: Story) -> None:
    """TensorFlow's checkpoints go by a prefix, which is no file."""
    story.begin()
    story.log(_1=1.5, _2=2.5, _3=3.5)
    for end in ("index", "data-00000-of-00001"):
        story.save(f"ckpt-2.{end}", 3.25)
        story.save(f"ckpt-20.{end}", 9.25)
    prefix = story.own.checkpoints / "ckpt-2"
    story.end()
    assert story.begin(prefix) == 3


@pytest.mark.parametrize(("when", "step"), [(101.0, 2), (100.0, 1)])
def test_times_in_whole_seconds(story: Story, when: float, step: int) -> None:
    """Some file systems keep no more: what came in that second was before."""
    story.begin()
    story.log(_0=100.2, _1=101.9, _2=102.2)
    path = story.save("last.pt", when)
    story.end()
    assert story.begin(path) == step


def test_the_clock_of_the_file_system(
    story: Story, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file server's clock may be hours ahead of the node's."""
    story.begin()
    story.log(_0=100.5, _1=101.5, _2=102.5)
    path = story.save("last.pt", 101.75 + 7200.0)
    story.end()
    monkeypatch.setattr("sweep.control.next_step.time.time", lambda: _now(tmp_path) - 7200.0)
    assert story.begin(path) == 2


def _now(folder: Path) -> float:
    there = folder / "clock"
    there.touch()
    return there.stat().st_mtime


def test_of_the_attempt_that_saved(story: Story) -> None:
    """What an earlier one reported beyond is no part of it, though it was reported before."""
    story.begin()
    story.log(_0=100.5, _1=101.5, _2=102.5, _3=103.5)
    first = story.save("last.pt", 101.75)
    story.end()
    assert story.begin(first) == 2
    second = story.save("at once.pt", 110.25)  # before it reports anything
    story.end()
    assert story.begin(second) == 2
    story.log(_2=121.5)
    third = story.save("last.pt", 121.75)
    story.end()
    assert story.begin(third) == 3
    first.unlink()  # nobody knows any more when it was saved: after all that was reported
    story.end()
    assert story.begin(second) == 4


def test_nothing_reported(story: Story) -> None:
    """Then it goes on at 0."""
    story.begin()
    path = story.save("last.pt", 101.75)
    story.end()
    assert story.begin(path) == 0


def test_folders_and_copies(story: Story, tmp_path: Path) -> None:
    """A folder is saved when its last file is; of a copy elsewhere the time counts alone."""
    story.begin()
    story.log(_0=100.5, _1=101.5, _2=102.5)
    inside = story.save("step/model.pt", 101.75)
    os.utime(inside.parent, (100.75, 100.75))
    story.end()
    assert story.begin(inside.parent) == 2
    story.end()
    copy = tmp_path / "copy.pt"
    copy.write_text("x")
    os.utime(copy, (101.75, 101.75))
    assert story.begin(copy) == 2


def test_what_is_printed_is_read_later(ledger: Ledger, tmp_path: Path) -> None:
    """A line of output is seen up to a look after it was printed."""
    study: Any = replace(STUDY, objectives=(Objective("loss", "minimize", pattern="loss=(.*)"),))
    story = Story(Ledger(ledger.db, ledger.study_id, study), tmp_path)
    story.begin()
    story.log(_0=100.5, _1=101.95, _2=102.5)
    path = story.save("last.pt", 101.75)
    story.end()
    assert story.begin(path) == 2
