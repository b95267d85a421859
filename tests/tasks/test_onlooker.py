"""A task looks after the others beside its own work: no trial waits for a slow cluster."""

from __future__ import annotations

import threading

import pytest

from sweep.core.errors import DatabaseUnavailable
from sweep.tasks.onlooker import Onlooker
from tests.waiting import PATIENCE_S


def test_a_slow_look_is_not_waited_for() -> None:
    """It goes on meanwhile, one at a time, and its result is told once."""
    may_end, looks = threading.Event(), []

    def look() -> bool:
        looks.append(1)
        return may_end.wait(PATIENCE_S)

    others = Onlooker(look, print, beside=True)
    others.begin()
    assert others.result(0.05) is None
    others.begin()
    assert (others.result(0.0), len(looks)) == (None, 1)
    may_end.set()
    assert others.result(PATIENCE_S) is True
    assert others.result(PATIENCE_S) is False, "told once"
    others.begin()
    assert (others.result(PATIENCE_S), len(looks)) == (True, 2)


def test_what_is_cheap_to_ask_is_asked_at_once() -> None:
    """On one machine no thread is needed."""
    here = threading.get_ident()
    others = Onlooker(lambda: threading.get_ident() == here, print, beside=False)
    others.begin()
    assert others.result(0.0) is True


def test_a_database_that_is_away_is_said_and_a_fault_is_one() -> None:
    """The next look comes; a fault of sweep's own ends the task, as any other."""
    said: list[str] = []

    def away() -> bool:
        raise DatabaseUnavailable("no connection", "")

    others = Onlooker(away, said.append, beside=True)
    others.begin()
    assert others.result(PATIENCE_S) is False
    assert said == ["the other tasks could not be looked after: no connection"]

    def faulty() -> bool:
        raise KeyError("x")

    others = Onlooker(faulty, said.append, beside=True)
    others.begin()
    with pytest.raises(KeyError):
        others.result(PATIENCE_S)
