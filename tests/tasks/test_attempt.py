"""A sampler or terminator that fails holds its study with the true reason; no trial is lost."""

from __future__ import annotations

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
from sweep.storage import records, studies
from sweep.storage.ledger import Ledger
from sweep.tasks.attempt import AttemptRun
from sweep.tasks.patience import Patience
from tests.storage.ledgers import do
from tests.study_rows import Row, fill, make_study

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
        study=ledger.study, ledger=ledger, folder=StudyFolder(folder), say=said.append
    )
    tools: Any = SimpleNamespace(
        leave=leave,
        patience=Patience(ledger.db, leave, said.append),
        recorder=None,
        outbox=SimpleNamespace(end=lambda *_: None),
        view=SimpleNamespace(storage=lambda _: None),
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
    ],
)
def test_a_sampler_that_fails(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    """The study is held, and says why; the trial waits to be claimed again after a launch."""

    def fail(*_: object) -> None:
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
