"""Dead attempts are settled by what they left, and by nothing else."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.control import dead_attempt
from sweep.control.reconcile import Reconciled, reconcile
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.scheduler import Task, TaskState, Wave
from sweep.core.trial import Place
from sweep.results.ranking import rows
from sweep.results.status import snapshot
from sweep.search.propose import first_rows
from sweep.storage import bulk, records
from sweep.storage.connection import Database
from sweep.training.attempt_files import make_folder
from tests.storage import ledgers
from tests.study_rows import make_study


class Gone:
    """A scheduler that knows of no task."""

    explains_late = False

    def has(self, wave: Wave) -> bool:
        return True

    def queued(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        return self.poll(jobs)

    def explain(
        self, jobs: Sequence[str], states: Mapping[Task, TaskState]
    ) -> dict[Task, TaskState]:
        return dict(states)

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


def replace_by_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def replace_by_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def replace_by_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as ours:
        where = os.getcwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            ours.bind(path.name)
        finally:
            os.chdir(where)


def replace_by_loop(path: Path) -> None:
    """What cannot be opened, also by root."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


ODD: dict[str, Callable[[Path], object]] = {
    "folder": replace_by_folder,
    "FIFO": replace_by_fifo,
    "socket": replace_by_socket,
    "loop": replace_by_loop,
    "empty": lambda path: path.write_text(""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\0{"),
    "a list": lambda path: path.write_text("[1]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "half characters": lambda path: path.write_text('{"told": "\\ud800", "exit_code": "x"}'),
    "a number no column holds": lambda path: path.write_text(f'{{"exit_code": {10**30}}}'),
}


@pytest.mark.parametrize("name", ["exit.json", "log.txt", "control.json", "metrics.jsonl"])
def test_whatever_stands_there_stops_nobody(scene: Scene, name: str, tmp_path: Path) -> None:
    """One attempt for each kind of thing, and a sound one last: all are settled."""
    study = replace(scene.ledger.study, trials=len(ODD) + 1)
    with scene.ledger.db.transaction():
        bulk.insert_waiting_trials(
            scene.ledger.db, scene.ledger.study_id, first_rows(study, len(ODD) - 2, start=3)
        )
    claimed = {}
    for token in (*ODD, "sound"):
        number, attempt = scene.claim(token)
        made = scene.folder.attempt(number, attempt)
        make_folder(made, token)
        made.metrics.write_text('{"step": 1, "metrics": {"other": 2.5}}\n')
        claimed[token] = number
        if token in ODD:
            ODD[token](made.root / name)
    found = scene.reconcile()
    assert len(found.settled) == len(ODD) + 1
    attempts = {attempt.token: attempt for attempt in scene.ledger.all_attempts()}
    assert all(attempt.outcome is not None for attempt in attempts.values())
    assert scene.metrics(claimed["sound"]) == {"other": [(1, 2.5)]}
    assert attempts["sound"].notes == ()
    if name != "metrics.jsonl":
        assert scene.metrics(claimed["folder"]) == {"other": [(1, 2.5)]}
    for kind in ("folder", "FIFO", "socket", "loop"):
        (note,) = attempts[kind].notes
        assert note.startswith(name), note
    snapshot(scene.ledger, scene.folder, {})
    rows(records.read_trials(scene.ledger.db, scene.ledger.study_id, study), study)


def test_checkpoints_that_cannot_be_looked_at(scene: Scene) -> None:
    """Also one whose name is no text: it stays usable, and its record is readable."""
    number, attempt = scene.claim("mine")
    made = scene.folder.attempt(number, attempt)
    make_folder(made, "mine")
    os.close(os.open(os.fsencode(made.checkpoints) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    (made.checkpoints / os.fsdecode(b"caf\xe9")).write_text("1")
    scene.reconcile()
    (first,) = scene.ledger.all_attempts()
    assert first.outcome == "lost"
    assert first.checkpoint == f"{made.checkpoints}/caf?"
    number, attempt = scene.claim("second")
    made = scene.folder.attempt(number, attempt)
    make_folder(made, "second")
    made.checkpoints.rmdir()
    made.checkpoints.symlink_to("checkpoints")
    scene.reconcile()
    last = scene.ledger.all_attempts()[-1]
    assert (last.outcome, last.checkpoint) == ("lost", None)
    assert [note.partition(":")[0] for note in last.notes] == ["checkpoints cannot be read"]


def test_a_fault_of_ours_stops_no_other(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves a crash file and a note in status, and the attempt ends all the same."""
    for token in ("bad", "good"):
        number, attempt = scene.claim(token)
        make_folder(scene.folder.attempt(number, attempt), token)
    real = dead_attempt.newest_of

    def newest_of(folder: AttemptFolder, pattern: str | None) -> Any:
        if "00000" in str(folder.root):
            raise TypeError("a bug")
        return real(folder, pattern)

    monkeypatch.setattr(dead_attempt, "newest_of", newest_of)
    found = scene.reconcile()
    assert len(found.settled) == 2
    bad, good = scene.ledger.all_attempts()
    assert (bad.outcome, good.outcome) == ("lost", "lost")
    (crash,) = (tmp_path / ".crashes").iterdir()
    assert "TypeError: a bug" in crash.read_text()
    assert bad.notes == (f"could not be taken in (TypeError: a bug); details in {crash}",)
    assert snapshot(scene.ledger, scene.folder, {}).notes == (f"trial 0: {bad.notes[0]}",)
    shutil.rmtree(crash.parent)  # it was meant
