"""Telling the user by a command of his: what it is told, once, and what is said where it fails."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweep.control import notifying
from sweep.core.paths import StudyFolder
from sweep.core.study import Notify
from sweep.results.status import snapshot
from sweep.storage import notices, retries, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.studies import StudyState
from tests.processes import find_processes
from tests.storage.ledgers import do
from tests.study_rows import Row, fill, make_study
from tests.waiting import wait_for

STUDY = make_study(trials=2)
DONE = (Row(values=(0.5,), params={"lr": 0.1}), Row(values=(0.9,), params={"lr": 0.01}))
OPEN = (DONE[0], Row("WAITING", attempts=()))
KEEP = "import sys, pathlib; pathlib.Path('told').open('a').write(sys.stdin.read() + '\\n')"


@dataclass
class Scene:
    """A study in a database and its folder, whose command appends what it is told to a file."""

    url: str
    ledger: Ledger
    folder: StudyFolder
    said: list[str]

    def notify(self, code: str = KEEP, on: Sequence[str] = ("ended", "held", "stuck")) -> None:
        study = dataclasses.replace(
            self.ledger.study,
            workdir=str(self.folder.root),
            notify=Notify(command=(sys.executable, "-c", code), on=tuple(on)),
        )
        self.folder.study.write_text(study.to_json())

    def tell(self, **more: Any) -> None:
        notifying.tell(self.ledger, self.folder, self.said.append, **more)

    @property
    def told(self) -> list[dict[str, Any]]:
        path = self.folder.root / "told"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def write_state(self, word: str, reason: str, since: float = 5.0) -> None:
        state = StudyState(word, reason, since=since)
        do(self.ledger, lambda: studies.write_state(self.ledger.db, self.ledger.study_id, state))

    def notes(self) -> Sequence[str]:
        return snapshot(self.ledger, self.folder, {}).notes


def scenes(url: str, folder: Path, rows: Sequence[Row]) -> Iterator[Scene]:
    ledger = fill(url, STUDY, rows)
    (folder / "digits").mkdir()
    scene = Scene(url, ledger, StudyFolder(folder / "digits"), [])
    scene.notify()
    yield scene
    ledger.db.close()


@pytest.fixture
def ended(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A study whose trials are final."""
    yield from scenes(database_url, tmp_path, DONE)


@pytest.fixture
def going(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A study of which a trial is left."""
    yield from scenes(database_url, tmp_path, OPEN)


def test_the_end_is_told_once(ended: Scene) -> None:
    """With counts and the best trial; a relaunch that finds nothing to do tells nothing again."""
    ended.tell()
    ended.write_state(studies.RUNNING, "", since=99.0)  # launched again
    ended.tell()
    (told,) = ended.told
    assert told["event"] == "ended" and told["reason"] == "all trials are final"
    assert told["counts"] | {"complete": 2} == told["counts"] and told["trials"] == 2
    assert told["best"] == {"trial": 1, "value": 0.9, "params": {"lr": 0.01}}
    assert (told["study"], told["metric"], told["report"]) == ("digits", "acc", None)
    assert ended.said == [ended.said[0]] and ended.said[0].startswith("notify (ended): ")
    assert not [note for note in ended.notes() if "notify" in note]


def test_what_ended_it_is_told(ended: Scene) -> None:
    ended.write_state(studies.ENDED, "its patience is used up")
    ended.tell()
    assert ended.told[0]["reason"] == "its patience is used up"


def test_trials_that_are_retried_end_again(ended: Scene) -> None:
    ended.tell()
    do(ended.ledger, lambda: retries.count_retry(ended.ledger.db, ended.ledger.study_id))
    ended.tell()
    assert len(ended.told) == 2


def test_a_running_study_tells_nothing(going: Scene) -> None:
    going.tell()
    assert going.told == [] == going.said


def test_held_once_a_launch(going: Scene) -> None:
    """Every task finds it held; a launch that goes on and is held again tells so."""
    going.write_state(studies.HELD, "exit code 1")
    going.tell()
    going.tell()
    assert [told["reason"] for told in going.told] == ["exit code 1"]
    going.write_state(studies.HELD, "exit code 1", since=6.0)
    going.tell()
    assert len(going.told) == 2


def test_a_hold_keeps_its_launch(going: Scene) -> None:
    """So that all who find it take it for the same event."""
    going.write_state(studies.RUNNING, "", since=7.0)
    db, study_id = going.ledger.db, going.ledger.study_id
    do(going.ledger, lambda: studies.hold(db, study_id, "no such image"))
    event = do(going.ledger, lambda: notices.read_event(going.ledger))
    assert event == notices.Event("held", "no such image", "held-7")


def test_stuck(going: Scene) -> None:
    """Only where nothing of it runs; a stop is the user's own."""
    going.tell(stuck="the next wave was not submitted")
    assert [(t["event"], t["reason"]) for t in going.told] == [
        ("stuck", "the next wave was not submitted")
    ]
    going.write_state(studies.STOPPED, "sweep stop")
    going.tell(stuck="x")
    assert len(going.told) == 1


def test_only_what_was_asked_for(going: Scene) -> None:
    going.notify(on=("ended",))
    going.write_state(studies.HELD, "x")
    going.tell()
    assert going.told == []


def test_eight_at_once_tell_once(ended: Scene) -> None:
    """Each with a connection of its own, as tasks have."""

    def tell() -> None:
        db = Database(ended.url)
        ledger = Ledger(db, ended.ledger.study_id, STUDY)
        ready.wait()
        notifying.tell(ledger, ended.folder, ended.said.append)
        db.close()

    ready = threading.Barrier(8)
    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended.told) == 1 == len(ended.said)


def test_a_teller_that_was_killed(ended: Scene) -> None:
    """What it took is not told again, and status says so once it can have no result any more."""
    db, study_id = ended.ledger.db, ended.ledger.study_id
    event = do(ended.ledger, lambda: notices.read_event(ended.ledger))
    do(ended.ledger, lambda: notices.claim(db, study_id, event, "killed", "node7"))
    ended.tell()
    assert ended.told == []
    assert not [note for note in ended.notes() if "notify" in note]
    found = do(ended.ledger, lambda: notices.read_notices(db, study_id))
    now_s = found[event.key].time + notifying.LATE_S
    (said,) = notifying.complaints(found, now_s + 1.0)
    assert said.startswith("notify (ended): begun on node7, and whoever did it was killed")
    assert notifying.complaints(found, now_s - 1.0) == []


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("print('no such room'); raise SystemExit(3)", "exit code 3: no such room"),
        ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL"),
        ("import os; os.close(0); raise SystemExit(1)", "exit code 1"),
    ],
)
def test_a_command_that_fails(ended: Scene, code: str, result: str) -> None:
    """It is said in status, with where its output is; the study has ended all the same."""
    ended.notify(code)
    ended.tell()
    (note,) = [note for note in ended.notes() if "notify" in note]
    assert result in note and "notify_ended-2-0.log" in note
    assert snapshot(ended.ledger, ended.folder, {}).is_over


def test_a_command_that_is_not_there(ended: Scene) -> None:
    study = dataclasses.replace(STUDY, notify=Notify(command=("/no/such",)), workdir="/")
    ended.folder.study.write_text(study.to_json())
    ended.tell()
    (note,) = [note for note in ended.notes() if "notify" in note]
    assert "/no/such could not be started" in note


def test_a_command_that_hangs(ended: Scene, tmp_path: Path) -> None:
    """It is ended with what it has started."""
    code = f"import subprocess; subprocess.run(['sleep', '3601'], cwd={str(tmp_path)!r})"
    ended.notify(code)
    ended.tell(time_s=1.0)
    assert "was ended: it took longer than 1 s" in ended.said[0]
    wait_for(lambda: not find_processes(tmp_path), "what it started to end")


def test_no_secret_is_told(ended: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the command get the database's address."""
    monkeypatch.setenv("SWEEP_STORAGE", ended.url)
    monkeypatch.setenv("PGPASSWORD", "s3cret-word")
    ended.notify(f"{KEEP}; import os; pathlib.Path('names').write_text(' '.join(os.environ))")
    ended.write_state(studies.ENDED, "postgresql://me:s3cret-word@host/db is full")
    ended.tell()
    assert ended.told[0]["reason"] == "postgresql://me:***@host/db is full"
    names = (ended.folder.root / "names").read_text().split()
    assert "PATH" in names and not {"SWEEP_STORAGE", "PGPASSWORD"} & set(names)
    log = ended.folder.logs / "notify_ended-2-0.log"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_damaged_folder_stops_nobody(ended: Scene) -> None:
    ended.folder.study.write_text("{")
    ended.tell()
    assert len(ended.said) == 1 and "study.json" in ended.said[0]
    assert os.listdir(ended.folder.root) == ["study.json"]
