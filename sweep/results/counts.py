"""How many trials, in words."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.core import outcomes


def count_trials(count: int, one: str = "", more: str = "") -> str:
    """Return "1 trial" or "3 trials", with the words that go with one or with several."""
    return f"{count} trial {one}".rstrip() if count == 1 else f"{count} trials {more}".rstrip()


def counted(counts: Mapping[str, int]) -> str:
    """Return the counts that are not zero, in words."""
    order = (*outcomes.FINAL_STATES, outcomes.RUNNING, outcomes.WAITING)
    return ", ".join(f"{counts[s]} {s}" for s in order if counts.get(s)) or "no trials"
