"""An attempt that cannot go on by no fault of its training's.

A sampler or terminator that fails holds its study with the true reason; other faults end the
attempt, and its task goes on. No trial is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.errors import SweepError
from sweep.core.paths import StudyFolder
from sweep.core.study import Choice
from sweep.core.trial import Place
from sweep.search import propose, terminator
from sweep.search.own import OwnFailed
from sweep.storage import records, studies
from sweep.storage.ledger import Ledger
from sweep.tasks.attempt import AttemptRun
from sweep.tasks.patience import Patience
from tests.conftest import Sweep
from tests.storage.ledgers import do
from tests.study_rows import Row, fill, make_study
from tests.toys import TRAINING, write_toy

ASKED = object()  # answers for a sampler of the user's own
STUDY = replace(make_study(), sampler=Choice("tpe"), trials=3)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    found = fill(database_url, STUDY, [Row("WAITING", attempts=()) for _ in range(3)])
    yield found
    found.db.close()


def begin(ledger: Ledger, folder: Path, said: list[str]) -> AttemptRun:
    """Claim a trial without parameters, as a worker does, and return its attempt."""
    claim = do(ledger, lambda: ledger.claim("t", Place("job", 0, "node", "boot")))
    leave: Any = SimpleNamespace(folder=None, wanted=False)
    context: Any = SimpleNamespace(
        study=ledger.study, ledger=ledger, folder=StudyFolder(folder), say=said.append, seat=None
    )
    tools: Any = SimpleNamespace(
        leave=leave,
        patience=Patience(ledger.db, leave, said.append),
        recorder=None,
        outbox=SimpleNamespace(end=lambda *_: None),
        view=SimpleNamespace(storage=lambda _: None, asked=lambda: ASKED),
    )
    return AttemptRun(context, tools, replace(claim, sampled=False))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ImportError("libtorch.so: cannot open it"),
            "the sampler tpe failed: ImportError: libtorch.so: cannot open it",
        ),
        (ValueError("singular matrix"), "the sampler tpe failed: ValueError: singular matrix"),
        (
            SweepError("The sampler gp needs torch.", "Pip install torch."),
            "the sampler tpe cannot work: The sampler gp needs torch. Pip install torch.",
        ),
        (
            OwnFailed("The sampler m:A failed: KeyError: 'x'.", "Correct it."),
            "The sampler m:A failed: KeyError: 'x'. Correct it.",
        ),
    ],
)
def test_a_sampler_that_fails(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    """The study is held, and says why; the trial waits to be claimed again after a launch."""

    def fail(*given: object, is_late: bool) -> None:
        assert given[-1] is ASKED
        assert not is_late, "three trials are proposed for when they are claimed"
        raise error

    monkeypatch.setattr(propose, "propose", fail)
    said: list[str] = []
    assert begin(ledger, tmp_path, said).run() == "given back"
    state = studies.read_state(ledger.db, ledger.study_id)
    assert (state.word, state.reason) == ("held", expected)
    counts = records.count_states(ledger.db, ledger.study_id)
    assert {word: n for word, n in counts.items() if n} == {"waiting": 3}
    shows_where = any("Traceback" in line for line in said)
    assert shows_where is not isinstance(error, SweepError)


def test_a_terminator_that_fails(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does; the trial that has just ended keeps its result."""

    def fail(*_: object) -> None:
        raise RuntimeError("no torch")

    monkeypatch.setattr(terminator, "judge", fail)
    ledger.study = replace(STUDY, terminator=Choice("emmr"))
    attempt = begin(ledger, tmp_path, [])
    attempt._end_study("complete")
    state = studies.read_state(ledger.db, ledger.study_id)
    assert (state.word, state.reason) == (
        "held",
        "the terminator emmr failed: RuntimeError: no torch",
    )


# Where sweep is going to note the end, and to look why it ended.
ODD = """
folder = pathlib.Path(os.environ["SWEEP_TRIAL_DIR"])
(folder / "exit.json").mkdir()
(folder / "log.txt").unlink()
os.mkfifo(folder / "log.txt")
"""


@pytest.mark.real
def test_odd_files_stop_nobody(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """A trial whose files cannot be written fails with the reason, all others are complete; what
    cannot be read is noted, and every command answers."""
    study = write_toy(tmp_path, trials=1, parallel=1, training=TRAINING + ODD)
    assert sweep("launch", study, "--wait").code == 0
    (runs / "toy/trials/00001/config.yaml").mkdir(parents=True)
    ran = sweep("launch", study, "--set", "trials=3", "--wait", "--json")
    assert ran.code == 0, ran.err
    status = json.loads(ran.out)
    assert (status["counts"]["complete"], status["counts"]["failed"]) == (2, 1)
    notes = [
        "exit.json cannot be read: is no regular file",
        "log.txt cannot be read: is no regular file",
    ]
    assert status["notes"] == [f"trial 0: {notes[0]} (2 more trials have such notes)"]
    ran = sweep("collect", "toy", "--state", "complete", "--state", "failed", "--format", "json")
    assert ran.code == 0, ran.err
    rows = {row["trial"]: row for row in json.loads(ran.out)}
    assert [rows[n]["state"] for n in range(3)] == ["complete", "failed", "complete"]
    assert rows[0]["notes"] == rows[2]["notes"] == notes
    assert "config.yaml cannot be written or read: Is a directory" in rows[1]["reason"]
    ran = sweep("logs", "toy", "0")
    assert ran.code == 0
    assert f"--- note: {notes[0]}" in ran.out
    assert "cannot be read: is no regular file" in ran.out
