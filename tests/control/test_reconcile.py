"""Dead attempts are settled by what they left, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sweep.control.reconcile import Reconciled, reconcile
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Task, TaskState, Wave
from sweep.core.trial import Place
from sweep.results.ranking import rows
from sweep.results.status import snapshot
from sweep.storage import records
from sweep.storage.connection import Database
from sweep.training.attempt_files import make_folder
from tests.storage import ledgers
from tests.study_rows import make_study


class Gone:
    """A scheduler that knows of no task."""

    explains_late = False

    def has(self, wave: Wave) -> bool:
        return True

    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        return {}


class Scene:
    """A study of three trials in a database, whose attempts' tasks are gone."""

    def __init__(self, root: Path, url: str) -> None:
        self.folder = StudyFolder(root)
        self.ledger = ledgers.make(Database(url), make_study(trials=3))

    def claim(self, token: str) -> tuple[int, int]:
        """Claim a trial; return its number and the attempt's."""
        place = Place("job", 0, "elsewhere")
        claim = ledgers.do(self.ledger, lambda: self.ledger.claim(token, place))
        return claim.number, claim.attempt

    def reconcile(self) -> Reconciled:
        found = reconcile(self.ledger, self.folder, Gone(), unseen_s=0.0, every_s=0.0)  # type: ignore[arg-type]
        assert found is not None
        return found

    def metrics(self, number: int) -> dict[str, list[tuple[int, float]]]:
        ledger = self.ledger
        (record,) = records.read_trials(
            ledger.db, ledger.study_id, ledger.study, numbers=[number], metrics=True
        )
        return {name: list(series) for name, series in record.metrics.items()}


@pytest.fixture
def scene(tmp_path: Path, fresh_url: str) -> Scene:
    return Scene(tmp_path / "study", fresh_url)


def test_a_forgotten_attempts_folder_is_not_read(scene: Scene) -> None:
    """The attempt died before it could make its own: what stands there is of another database."""
    number, attempt = scene.claim("mine")
    made = scene.folder.attempt(number, attempt)
    make_folder(made, "old")
    made.metrics.write_text('{"step": 1, "metrics": {"loss": 0.0, "score": 9.0}}\n')
    made.exit.write_text('{"exit_code": 0, "signal": null, "told": "", "time": 1.0}')
    (made.checkpoints / "last").write_text("1")
    found = scene.reconcile()
    assert [(t, n, end.outcome, state) for t, n, end, state in found.settled] == [
        (number, 1, "lost", "running")
    ]
    assert scene.metrics(number) == {}
    assert scene.ledger.all_attempts()[0].checkpoint is None


def test_its_own_folder_is_read(scene: Scene) -> None:
    number, attempt = scene.claim("mine")
    made = scene.folder.attempt(number, attempt)
    make_folder(made, "mine")
    made.metrics.write_text('{"step": 1, "metrics": {"other": 2.5}}\n')
    (made.checkpoints / "last").write_text("1")
    scene.reconcile()
    assert scene.metrics(number) == {"other": [(1, 2.5)]}
    assert scene.ledger.all_attempts()[0].checkpoint == str(made.checkpoints / "last")


def test_what_was_odd_is_shown(scene: Scene) -> None:
    """On the trial, and the first of it in status; the values beside it count."""
    ledger = scene.ledger
    for token in ("first", "second"):
        number, attempt = scene.claim(token)
        made = scene.folder.attempt(number, attempt)
        make_folder(made, token)
        metric = ledger.study.objective.metric
        made.metrics.write_text(
            f'{{"step": 1, "metrics": {{"{metric}": 2.5, "other": "n/a"}}}}\n{{"step": -1}}\n'
        )
        made.exit.write_text('{"exit_code": 0, "signal": null, "told": "", "time": 1.0}')
    scene.reconcile()
    found = records.read_trials(ledger.db, ledger.study_id, ledger.study)
    assert [record.state for record in found] == ["complete", "complete", "waiting"]
    (note,) = found[0].notes
    assert note.startswith("2 lines or values of metrics.jsonl could not be read, the first: ")
    assert found[2].notes == ()
    assert rows(found, ledger.study)[0]["notes"] == [note]
    said = snapshot(ledger, scene.folder, {}).notes
    assert [*said] == [f"trial 0: {note} (1 more trial has such notes)"]
