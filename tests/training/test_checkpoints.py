"""Which checkpoint a trial goes on from: the newest that is neither damaged nor somebody else's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.training.checkpoints import SAVED_S, checkpoints, newest_checkpoint
from sweep.training.digests import digest
from tests.reports import append


@pytest.fixture
def attempts(tmp_path: Path) -> list[AttemptFolder]:
    """Two attempts, the later first; each has reported and saved ``last``."""
    study = StudyFolder(tmp_path / "study")
    found = [study.attempt(0, number) for number in (2, 1)]
    for folder in found:
        folder.checkpoints.mkdir(parents=True)
        append(folder, 1, {"loss": 1.0})
        (folder.checkpoints / "last").write_text(str(folder.root))
    return found


def records(attempts: list[AttemptFolder]) -> dict[str, str]:
    paths = [folder.checkpoints / "last" for folder in attempts]
    return {str(path): digest(path) for path in paths}


def found_in(attempts: list[AttemptFolder], known: dict[str, str]) -> tuple[Path, str] | None:
    found = newest_checkpoint(attempts, known)
    return None if found is None else (found.path, found.digest)


def test_the_latest_attempts(attempts: list[AttemptFolder]) -> None:
    """With its hash, recorded or not."""
    path = attempts[0].checkpoints / "last"
    assert found_in(attempts, records(attempts)) == (path, digest(path))
    assert found_in(attempts, {}) == (path, digest(path))


def test_a_damaged_one_is_passed_over(attempts: list[AttemptFolder]) -> None:
    """It was changed when its training was long gone."""
    known = records(attempts)
    path = attempts[0].checkpoints / "last"
    path.write_text("damaged")
    later = time.time() + SAVED_S + 5
    os.utime(path, (later, later))
    found = newest_checkpoint(attempts, known)
    assert found is not None and found.path == attempts[1].checkpoints / "last"


def test_a_link_to_one_that_was_removed(attempts: list[AttemptFolder]) -> None:
    """Trainings keep a link to their newest and remove the others; the rest still counts."""
    known = records(attempts)
    folder = attempts[0].checkpoints
    for name in ("a", "zz"):
        (folder / name).symlink_to("removed.pt")
    (folder / "loop").symlink_to("loop")
    assert checkpoints(attempts[0]) == [folder / "last"]
    assert found_in(attempts, known) == (folder / "last", known[str(folder / "last")])


def test_a_checkpoint_folder_with_a_link_to_nothing(attempts: list[AttemptFolder]) -> None:
    """It was saved again by its training: the link does not hide that."""
    folder = attempts[0].checkpoints / "last"
    folder.unlink()
    folder.mkdir()
    (folder / "weights").write_text("weights")
    (folder / "previous").symlink_to("removed")
    append(attempts[0], 2, {"loss": 0.5})
    assert found_in(attempts, {str(folder): "of before"}) == (folder, digest(folder))


def test_one_that_its_training_has_saved_again_is_the_newest(attempts: list[AttemptFolder]) -> None:
    """The attempt was given up, and its hash recorded, while its training lived on elsewhere."""
    known = records(attempts)
    path = attempts[0].checkpoints / "last"
    path.write_text("a later step")
    append(attempts[0], 2, {"loss": 0.5})
    assert found_in(attempts, known) == (path, digest(path))


def test_one_that_could_not_be_resumed_is_refused(attempts: list[AttemptFolder]) -> None:
    """Wherever it lies: a copy of it is the same."""
    newest = attempts[0].checkpoints / "last"
    refused = {digest(newest)}
    older = attempts[1].checkpoints / "last"
    found = newest_checkpoint(attempts, {}, refused=refused)
    assert found is not None and found.path == older
    older.write_bytes(newest.read_bytes())
    assert newest_checkpoint(attempts, {}, refused=refused) is None
