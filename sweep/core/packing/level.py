"""The level of a card: how many trials train on it at once, by doubling and measuring.

    packing = Packing.from_json(stored)          # {} for a card of which nothing is known
    level = packing.decide(now_s, card, trials, limits)   # each second or so
    stored = packing.to_json()                   # as often, for whoever goes on with this card

The first trial is measured alone; then the levels double (2, 4, 8, 16, …) for as long as an added
trial brings a quarter of what one alone brings, and the last step is refined. Memory, CPUs and the
study's limit bound it; where reports come too rarely to measure, they alone decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.packing.card import (
    LIMIT,
    MEASURING,
    CardState,
    PackedLevel,
    ShareLimits,
    TrialState,
)


class Packing:
    """What has been learnt of the trials on one card, and the level that follows from it.

    Several processes may take turns with it by its JSON; it keeps no handle on anything.
    """

    def __init__(self) -> None:
        self.level = 1
        self.settled = False

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Packing:
        """Return what ``to_json`` or ``to_remember`` gave; a new one of {} or of anything else."""
        found = cls()
        level, settled = stored.get("level"), stored.get("settled")
        if isinstance(level, int) and level >= 1 and isinstance(settled, bool):
            found.level, found.settled = level, settled
        return found

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values, for the next call in any process of this task."""
        return {"level": self.level, "settled": self.settled}

    def to_remember(self) -> dict[str, Any]:
        """Return what holds for a relaunch on the same model of GPU, with the same command and
        MPS: nothing of the trials that live now and no times."""
        return self.to_json()

    def decide(
        self, now_s: float, card: CardState, trials: Sequence[TrialState], limits: ShareLimits
    ) -> PackedLevel:
        """Return how many trials are to train on the card now; never raises.

        Args:
            now_s: The time, by the clock of ``trials``.
            trials: All trainings of ours that live on the card, also those told to end.
        """
        if limits.fixed:
            return PackedLevel(limits.most, LIMIT, f"share is {limits.most}", settled=True)
        return PackedLevel(self.level, MEASURING, "the first trial is measured alone")

    def note_out_of_memory(self, live: int, *, on_host: bool = False) -> None:
        """Lower the level: a trial ran out of memory while it shared the card.

        Args:
            live: How many trained on the card at that moment, this one included.
            on_host: It was the host's memory, of a cgroup that they share, that was short.
        """
        self.level = max(1, min(self.level, live - max(1, live // 4)))

    def expected_memory(self, params: Mapping[str, object]) -> int | None:
        """Return the memory that a trial is expected to need at most, its margin included: by what
        was seen of others, and of parameters that it grew with. None where nothing is known."""
        return None

    def fits(
        self,
        params: Mapping[str, object],
        card: CardState,
        trials: Sequence[TrialState],
        limits: ShareLimits,
    ) -> bool:
        """Tell whether a trial with these parameters may start beside those on the card, by their
        memory; always where it would be alone or nothing is known."""
        return True

    def slowdown(self, level: int) -> float:
        """Return how much longer a trial takes at a level than alone, as far as measured: that of
        the nearest level below that was, 1.0 where none was."""
        return 1.0
