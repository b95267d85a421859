"""An attempt's folder is made new, and nobody takes another's for it."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from sweep.core.paths import StudyFolder
from sweep.core.trial import Attempt
from sweep.training.attempt_files import folder_of, make_folder, write_exit

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def attempt(number: int, token: str, group: int | None = None) -> Attempt:
    return Attempt(1, 7, number, token, None, None, "here", group, NOW, NOW)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "study")


def test_what_stands_there_is_moved_aside(folder: StudyFolder) -> None:
    """With those of later attempts, which the database has forgotten as well; twice, too."""
    parent = folder.attempt(7, 1).root.parent
    for token in ("old", "older"):
        for number in (1, 2, 3, 10):
            made = folder.attempt(7, number)
            if number > 1 or token == "old":
                assert make_folder(made, token) == []
            made.metrics.write_text(token)
        moved = make_folder(folder.attempt(7, 2), "new")
        names = [f"{n}-2" if token == "older" else f"{n}" for n in (2, 3, 10)]
        assert moved == [parent / "aside" / name for name in names]
        assert [(path / "metrics.jsonl").read_text() for path in moved] == [token] * 3
        assert sorted(p.name for p in parent.iterdir()) == ["1", "2", "aside"]
        assert sorted(p.name for p in (parent / "2").iterdir()) == ["attempt.json", "checkpoints"]
        (parent / "2" / "attempt.json").unlink()
        (parent / "2" / "checkpoints").rmdir()
        (parent / "2").rmdir()


def test_other_runs_stay(folder: StudyFolder) -> None:
    for k in (1, 2):
        make_folder(folder.rerun(k), "old", later_too=False)
    assert make_folder(folder.rerun(1), "new", later_too=False) == [
        folder.root / "reruns" / "aside" / "1"
    ]
    assert folder.rerun(2).root.is_dir()


def test_no_link_is_entered(folder: StudyFolder, tmp_path: Path) -> None:
    made = folder.attempt(7, 1)
    made.root.parent.mkdir(parents=True)
    made.root.symlink_to(tmp_path / "nowhere")
    assert len(make_folder(made, "new")) == 1
    assert made.root.is_dir() and not made.root.is_symlink()


def test_whose_folder_it_is(folder: StudyFolder) -> None:
    made = folder.attempt(7, 1)
    assert not folder_of(folder, attempt(1, "mine")).root.exists()
    make_folder(made, "mine")
    assert folder_of(folder, attempt(1, "mine")) == made
    assert not folder_of(folder, attempt(1, "later")).root.exists()
    assert not folder_of(folder, attempt(1, "later", group=99)).root.exists()


@pytest.mark.parametrize("mark", [None, "", "{", "[]"])
def test_without_a_mark_it_is_whose_training_ran(folder: StudyFolder, mark: str | None) -> None:
    """An earlier version left none."""
    made = folder.attempt(7, 1)
    made.root.mkdir(parents=True)
    if mark is not None:
        made.mark.write_text(mark)
    assert folder_of(folder, attempt(1, "mine", group=99)) == made
    assert not folder_of(folder, attempt(1, "mine")).root.exists()


def test_an_ended_one_says_so_in_the_file_about_its_end(folder: StudyFolder) -> None:
    """Inodes are counted: an ended attempt keeps no file for this alone."""
    made = folder.attempt(7, 1)
    make_folder(made, "mine")
    write_exit(made, 0, None, "")
    assert not made.mark.exists()
    assert folder_of(folder, attempt(1, "mine")) == made
    assert not folder_of(folder, attempt(1, "later", group=99)).root.exists()
