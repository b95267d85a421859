"""How many trials, in words."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.core import outcomes
from sweep.core.study import Study


def count_trials(count: int, one: str = "", more: str = "") -> str:
    """Return "1 trial" or "3 trials", with the words that go with one or with several."""
    return f"{count} trial {one}".rstrip() if count == 1 else f"{count} trials {more}".rstrip()


def count_trainings(study: Study, trials: int = 1) -> str:
    """Return how many trainings so many trials of a study are: "3", or "2 to 5"."""
    numbers = (study.replicates.min * trials, study.replicates.max * trials)
    return " to ".join(dict.fromkeys(str(number) for number in numbers))


def counted(counts: Mapping[str, int]) -> str:
    """Return the counts that are not zero, in words."""
    order = (*outcomes.FINAL_STATES, outcomes.RUNNING, outcomes.WAITING)
    return ", ".join(f"{counts[s]} {s}" for s in order if counts.get(s)) or "no trials"
