"""The level of a card: how many trials train on it at once, by doubling and measuring.

    packing = Packing.from_json(stored)          # {} for a card of which nothing is known
    level = packing.decide(now_s, card, trials, limits)   # each second or so
    stored = packing.to_json()                   # as often, for whoever goes on with this card

The first trial is measured alone; then the levels double (2, 4, 8, 16, …) for as long as an added
trial brings a quarter of what one alone brings, and the last step is refined. Memory, CPUs and the
study's limit bound it; where reports come too rarely to measure, they alone decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.packing.card import (
    CPUS,
    LIMIT,
    MEASURING,
    MEMORY,
    NO_GAIN,
    CardState,
    PackedLevel,
    ShareLimits,
    TrialState,
)
from sweep.core.packing.measuring import Measuring
from sweep.core.packing.peaks import CONTEXT_BYTES, Peaks
from sweep.core.sizes import byte_text

RARE_S = 1800.0  # without two reports: they come too rarely
RARE_STEP_S = 60.0  # nothing is measured then: how long each level's memory is watched
RARE_TRIALS = 3  # that ended alone without telling their speed: none will
OTHERS_COME_BACK_S = 600.0  # to the memory that they gave back
SPARE = 0.02  # of a card's memory, for what no process is seen to hold


class Packing:
    """What has been learnt of the trials on one card, and the level that follows from it.

    Several processes may take turns with it by its JSON; it keeps no handle on anything.
    """

    def __init__(self) -> None:
        self._best = 0  # the highest level that was found worth it; 0 before the first is measured
        self._bad: int | None = None  # the lowest that was not
        self._level = 1  # the one that is measured, or was chosen
        self._settled = False
        self._rare_s: float | None = None  # when the level was reached, if none can be measured
        self._is_rare = False  # reports come too rarely
        self._ceiling: int | None = None  # after an out-of-memory
        self._short_of_host = False
        self._measuring = Measuring()
        self._peaks = Peaks()
        self._others = 0  # bytes that others held at most of late
        self._others_s = 0.0  # when they did
        self._cpus: float | None = None  # that a trial keeps busy

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Packing:
        """Return what ``to_json`` or ``to_remember`` gave; a new one of {} or of anything else."""
        try:
            return cls._read(stored)
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls()

    @classmethod
    def _read(cls, stored: Mapping[str, Any]) -> Packing:
        found = cls()
        found._best, found._level = int(stored["best"]), max(1, int(stored["level"]))
        found._bad, found._ceiling = _whole(stored["bad"]), _whole(stored["ceiling"])
        found._settled, found._is_rare = bool(stored["settled"]), bool(stored["is_rare"])
        found._rare_s, found._cpus = _number(stored["rare"]), _number(stored["cpus"])
        found._short_of_host = bool(stored["short_of_host"])
        found._measuring = Measuring.from_json(stored["measuring"])
        found._peaks = Peaks.from_json(stored["peaks"])
        found._others, found._others_s = int(stored["others"]), float(stored["others_at"])
        return found

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values, for the next call in any process of this task."""
        return {
            "best": self._best,
            "bad": self._bad,
            "level": self._level,
            "settled": self._settled,
            "is_rare": self._is_rare,
            "rare": self._rare_s,
            "ceiling": self._ceiling,
            "short_of_host": self._short_of_host,
            "measuring": self._measuring.to_json(),
            "peaks": self._peaks.to_json(),
            "others": self._others,
            "others_at": self._others_s,
            "cpus": self._cpus,
        }

    def to_remember(self) -> dict[str, Any]:
        """Return what holds for a relaunch on the same model of GPU, with the same command and
        MPS: nothing of the trials that live now and no times."""
        kept = Packing.from_json(self.to_json())
        if not kept._settled and not kept._is_rare:
            kept._level = max(1, kept._best)
        kept._measuring.level = kept._level
        kept._measuring.forget_trials()
        kept._peaks.forget_trials()
        kept._others, kept._others_s, kept._rare_s = 0, 0.0, None
        return kept.to_json()

    def decide(
        self, now_s: float, card: CardState, trials: Sequence[TrialState], limits: ShareLimits
    ) -> PackedLevel:
        """Return how many trials are to train on the card now; never raises.

        Args:
            now_s: The time, by the clock of ``trials``.
            trials: All trainings of ours that live on the card, also those told to end.
        """
        self._look(now_s, card, trials)
        if limits.fixed:
            return self._fixed(limits)
        self._measuring.follow(now_s, trials, measure=self._is_measuring())
        bound, why, text = self._bound(card, trials, limits)
        self._step(now_s, trials, bound)
        if self._is_rare:
            rare = "reports come too rarely to measure"
            if self._level < bound:
                text = f"{rare}; the memory of {self._level} is watched"
                return self._answer(self._level, MEASURING, text)
            return self._answer(bound, why, f"{rare}; {text}", settled=True)
        if self._level >= bound:
            return self._answer(bound, why, text, settled=self._best >= bound)
        if self._settled:
            return self._answer(self._level, NO_GAIN, self._no_gain(), settled=True)
        if self._best == 0:
            return self._answer(self._level, MEASURING, "the first trial is measured alone")
        return self._answer(self._level, MEASURING, f"{self._level} at once are being measured")

    def note_ended(self, key: str, now_s: float, *, complete: bool) -> None:
        """Note that a training's process has ended; once, before the next ``decide``.

        Without it nothing is wrong, but trials that report once at most are not measured.

        Args:
            complete: It trained to its end: was neither stopped early nor did it fail.
        """
        self._measuring.note_run(key, now_s, complete=complete and self._is_measuring())

    def note_out_of_memory(self, live: int, *, on_host: bool = False) -> None:
        """Lower the level: a trial ran out of memory while it shared the card.

        Args:
            live: How many trained on the card at that moment, this one included.
            on_host: It was the host's memory, of a cgroup that they share, that was short.
        """
        fewer = max(1, live - max(1, live // 4))
        self._ceiling = fewer if self._ceiling is None else min(self._ceiling, fewer)
        self._short_of_host = on_host

    def expected_memory(self, params: Mapping[str, object]) -> int | None:
        """Return the memory that a trial is expected to need at most, its margin included: by what
        was seen of others, and of parameters that it grew with. None where nothing is known."""
        return self._peaks.expected(params)

    def fits(
        self,
        params: Mapping[str, object],
        card: CardState,
        trials: Sequence[TrialState],
        limits: ShareLimits,
    ) -> bool:
        """Tell whether a trial with these parameters may start beside those on the card, by their
        memory; always where it would be alone or nothing is known."""
        need = self._peaks.expected(params) or limits.memory_bytes
        if not trials or need is None or card.total_bytes is None:
            return True
        return need <= self._free(card, card.total_bytes, trials, limits)

    def slowdown(self, level: int) -> float:
        """Return how much longer a trial takes at a level than alone, as far as measured: that of
        the nearest level below that was, 1.0 where none was."""
        return self._measuring.slowdown(level) or 1.0

    def slowdowns(self) -> dict[int, float]:
        """Return how much longer a trial takes than alone, by each level that was measured."""
        return self._measuring.slowdowns()

    def progress(self, level: int) -> float | None:
        """Return what trials at a level get done together, one alone being 1; None where that was
        not measured."""
        return self._measuring.progress(level)

    def _is_measuring(self) -> bool:
        is_decided = self._settled or self._is_rare
        return not is_decided and (self._best == 0 or self._level > self._best)

    def _look(self, now_s: float, card: CardState, trials: Sequence[TrialState]) -> None:
        """Note the memory and the CPUs that trials and others use."""
        others = card.others_bytes
        if others is None and not trials:
            others = card.used_bytes
        if others is not None and (
            others >= self._others or now_s - self._others_s > OTHERS_COME_BACK_S
        ):
            self._others, self._others_s = others, now_s
        for trial in trials:
            own = trial.memory_bytes
            if own is None and trial.allocator_bytes is not None:
                own = trial.allocator_bytes + CONTEXT_BYTES
            if own is None and card.used_bytes is not None:
                own = max(0, card.used_bytes - self._others) // len(trials)
            if own is not None:
                self._peaks.note(trial.key, trial.params, own)
            if trial.cpus is not None and math.isfinite(trial.cpus):
                self._cpus = max(self._cpus or 0.0, trial.cpus)

    def _fixed(self, limits: ShareLimits) -> PackedLevel:
        if self._ceiling is not None and self._ceiling < limits.most:
            return self._answer(self._ceiling, MEMORY, self._out_of_memory(), settled=True)
        return self._answer(limits.most, LIMIT, f"share is {limits.most}", settled=True)

    def _bound(
        self, card: CardState, trials: Sequence[TrialState], limits: ShareLimits
    ) -> tuple[int, str, str]:
        """Return how many trials are possible, why not more, and the same for people."""
        bounds = [(limits.most, LIMIT, f"share allows {limits.most}")]
        if limits.available is not None:
            text = "max_parallel and the trials that are left allow no more"
            bounds.append((limits.available, LIMIT, text))
        if limits.cpus is not None:
            each = self._cpus if self._is_rare and self._cpus else 1.0
            of_each = "one CPU" if each <= 1.0 else f"{each:.1f} CPUs"
            text = f"{limits.cpus:g} CPUs, and a trial needs {of_each}"
            bounds.append((math.floor(limits.cpus / max(1.0, each)), CPUS, text))
        if self._ceiling is not None:
            bounds.append((self._ceiling, MEMORY, self._out_of_memory()))
        need = self._peaks.usual() or limits.memory_bytes
        need = max(need or 0, limits.memory_bytes or 0)
        if need and card.total_bytes is not None:
            more = math.floor(self._free(card, card.total_bytes, trials, limits) / need)
            text = f"a trial needs up to {byte_text(need)} of {byte_text(card.total_bytes)}"
            if self._others > SPARE * card.total_bytes:
                text += f", of which others hold {byte_text(self._others)}"
            bounds.append((len(trials) + more, MEMORY, text))
        bound, why, text = min(bounds, key=lambda each: each[0])
        return max(1, bound), why, text

    def _free(
        self, card: CardState, total: int, trials: Sequence[TrialState], limits: ShareLimits
    ) -> int:
        """Return the bytes that are left when all trials on a card have grown as expected."""
        room = round(total * (1 - SPARE))
        needs = [
            max(
                self._peaks.of(trial.key),
                self._peaks.expected(trial.params) or 0,
                limits.memory_bytes or 0,
            )
            for trial in trials
        ]
        free = room - self._others - sum(needs)
        if card.used_bytes is None:
            return free
        return min(free, room - card.used_bytes)

    def _step(self, now_s: float, trials: Sequence[TrialState], bound: int) -> None:
        """Judge the level that is measured, and go to the next one."""
        if self._settled:
            return
        if self._is_rare:
            self._step_unmeasured(now_s, trials, bound)
            return
        if self._best == 0:
            if self._measuring.settle_alone(now_s, trials):
                self._best = 1
                self._go_on(now_s, bound)
            elif self._measuring.unmeasured >= RARE_TRIALS or any(
                now_s - trial.began_s > RARE_S and len(trial.reports) < 2 for trial in trials
            ):
                self._is_rare = True
            return
        if self._level > max(bound, self._best):  # so many do not fit any more
            self._choose(now_s, max(bound, self._best))
        if self._level == self._best:
            self._go_on(now_s, bound)
            return
        worth = self._measuring.settle(now_s, self._best)
        if worth is None:
            return
        if worth:
            self._best = self._level
        else:
            self._bad = self._level
        self._go_on(now_s, bound)

    def _step_unmeasured(self, now_s: float, trials: Sequence[TrialState], bound: int) -> None:
        """Double the level for as long as memory allows, watching it for a while each time."""
        if len(trials) < min(self._level, bound):
            self._rare_s = None
        elif self._rare_s is None:
            self._rare_s = now_s
        elif now_s - self._rare_s >= RARE_STEP_S and self._level < bound:
            self._level, self._rare_s = min(self._level * 2, bound), None

    def _go_on(self, now_s: float, bound: int) -> None:
        """Choose the next level: twice the best, or between it and the one that was too many."""
        if self._bad is None:
            following = self._best * 2
            if following > bound > self._best:
                following = bound
        elif self._bad - self._best <= max(1, self._best // 4):
            self._settled = True
            following = self._best
        else:
            following = (self._best + self._bad) // 2
        # Where so many do not fit it waits at the best one until there is room.
        self._choose(now_s, following if following <= bound else self._best)

    def _choose(self, now_s: float, level: int) -> None:
        if level != self._level:
            self._level = level
            self._measuring.begin(now_s, level)

    def _answer(self, trials: int, why: str, text: str, *, settled: bool = False) -> PackedLevel:
        measured = self._measuring
        progress = measured.progress(trials)
        return PackedLevel(trials, why, text, settled, progress, measured.slowdown(trials))

    def _out_of_memory(self) -> str:
        whose = "the task's memory" if self._short_of_host else "the GPU's memory"
        return f"with more, a trial ran out of {whose}"

    def _no_gain(self) -> str:
        more = self._bad if self._bad is not None else self._best
        told, best = self._measuring.progress(more), self._measuring.progress(self._best)
        if told is None or best is None:
            return "more at once would not gain"
        return f"{more} at once get done what {told:.1f} alone do, {self._best} what {best:.1f} do"


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
