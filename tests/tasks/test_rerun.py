"""Which trial is run again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sweep.control.open_study import Opened
from sweep.core.errors import InputError
from sweep.core.paths import Runs
from sweep.tasks.side_runs.rerun import choose_trial, choose_trials
from tests.study_rows import Row, Tried, fill, make_study


@pytest.fixture
def opened(database_url: str, tmp_path: Path) -> Iterator[Opened]:
    rows = [
        Row(values=[0.5]),
        Row(values=[0.9]),
        Row("RUNNING", attempts=[Tried(None)]),
        Row(values=[-math.inf]),
    ]
    ledger = fill(database_url, make_study(trials=4), rows)
    with closing(ledger.db):
        folder = Runs(tmp_path).study("digits")
        yield Opened(folder, ledger.study, ledger)


def test_the_best_or_one_by_its_number(opened: Opened) -> None:
    """With its id and value, also where a notebook has told one that is not finite."""
    first = opened.ledger.find_trial(0)
    assert first is not None
    assert choose_trial(opened, None) == (1, first[0] + 1, 0.9)
    assert choose_trial(opened, 0) == (0, first[0], 0.5)
    assert choose_trial(opened, 3) == (3, first[0] + 3, -math.inf)
    assert [number for number, _, _ in choose_trials(opened, None, 2)] == [1, 0]


@pytest.mark.parametrize(
    ("number", "message"), [(2, "Trial 2 of digits is not complete"), (4, "digits has no trial 4")]
)
def test_what_cannot_be_run_again(opened: Opened, number: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_trial(opened, number)
