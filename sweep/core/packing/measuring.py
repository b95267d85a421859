"""The speed at each level, measured while trials train: by their reports and by whole trials.

Reports tell it within a trial's life, of the same trial before and after a change. Where trials
are short, or report once at most, how long whole trials took tells it as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from sweep.core.packing.card import TrialState
from sweep.core.packing.speeds import INTERVAL_NOISE, Rate, Speed, Speeds, mean, rate_of

WORTH = 0.25  # what an added trial must bring of what one alone brings
WORTH_OF_ALL = 1 / 6  # or, from two on, all added ones of what all did before
# How many standard errors a speed must lie above what is worth it, or below: one trial too many
# costs little, and shows at the next level; one too few costs much.
ERRORS_ABOVE, ERRORS_BELOW = 1.0, 1.645
STEPS_SPREAD = 0.7  # of trials' steps a second: what a step is may differ with a batch size
RUNS_SPREAD = 0.2  # of how long trials take, as logarithms both
FEWEST_SCALES = 4  # before a trial's steps are held against those of others
COMMON_NOISE = 0.02  # of a speed's logarithm: clocks, heat, neighbours
ALONE_INTERVALS = 3  # between a trial's reports, before its speed alone counts
FEWEST_INTERVALS = 2  # the same where it has ended
LEAST_S = 5.0  # of measuring
LONGEST_INTERVALS = 12  # a trial of the level; then what was seen so far decides
LONGEST_RUNS = 3  # the same, of whole trials
GRACE_S = 10.0  # fewer trials than the level for so long: one ended, the next comes
MOSTLY = 0.8  # of a trial's life at a level: it counts there


def slowdown_at(slowdowns: Mapping[int, float], trials: int) -> float | None:
    """Return how much longer a trial takes than alone where so many train at once: that of the
    most that was measured and is no more; None where none was."""
    known = [level for level in slowdowns if level <= trials]
    return slowdowns[max(known)] if known else None


class Measuring:
    """What is known of the levels' speeds, and what is being seen of one of them."""

    def __init__(self) -> None:
        self.level = 1
        self.unmeasured = 0  # trials that ended alone without a speed
        self._known: dict[int, Speed] = {}
        self._reports, self._runs = Speeds(STEPS_SPREAD), Speeds(RUNS_SPREAD)
        self._previous = 0  # the level before this one
        self._chosen_s = 0.0  # when the level was chosen
        self._reached_s: float | None = None  # when so many trained as it says
        self._since_s: float | None = None  # when all of them had begun to report
        self._short_s: float | None = None  # since when fewer do
        self._lives: dict[str, float] = {}  # when each was started

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Measuring:
        """Return what ``to_json`` gave.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: It is something else.
        """
        found = cls()
        found.level, found._previous = int(stored["level"]), int(stored["previous"])
        found.unmeasured = int(stored["unmeasured"])
        found._known = {int(n): Speed(*map(float, each)) for n, each in stored["known"].items()}
        found._reports = Speeds.from_json(stored["reports"], STEPS_SPREAD)
        found._runs = Speeds.from_json(stored["runs"], RUNS_SPREAD)
        found._chosen_s = float(stored["chosen"])
        found._reached_s, found._since_s, found._short_s = (
            None if stored[name] is None else float(stored[name])
            for name in ("reached", "since", "short")
        )
        found._lives = {str(key): float(began_s) for key, began_s in stored["lives"].items()}
        return found

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "level": self.level,
            "previous": self._previous,
            "unmeasured": self.unmeasured,
            "known": {str(level): list(astuple(each)) for level, each in self._known.items()},
            "reports": self._reports.to_json(),
            "runs": self._runs.to_json(),
            "chosen": self._chosen_s,
            "reached": self._reached_s,
            "since": self._since_s,
            "short": self._short_s,
            "lives": dict(self._lives),
        }

    def forget_trials(self) -> None:
        """Keep what holds for other trials of the study: no names and no times."""
        self._reports.forget_trials()
        self._runs.forget_trials()
        self._lives.clear()
        self.begin(0.0, self.level)

    def begin(self, now_s: float, level: int) -> None:
        """Begin to measure a level once as many trials train; none of what was seen is of it."""
        if level != self.level:
            self._previous, self.level = self.level, level
        self._chosen_s = now_s
        self._reached_s = self._since_s = self._short_s = None
        self._reports.current.clear()
        self._runs.current.clear()

    def follow(self, now_s: float, trials: Sequence[TrialState], *, measure: bool) -> None:
        """Follow the trials that live, and note their rates at the level if so many train.

        Args:
            measure: Whether there is still something to be measured.
        """
        for trial in trials:
            self._lives.setdefault(trial.key, trial.began_s)
        live = {trial.key for trial in trials}
        if measure and not self._known and not self._runs.current:
            gone = self._lives.keys() - live
            self.unmeasured += sum(not self._is_enough(key, live) for key in gone)
        self._lives = {key: began_s for key, began_s in self._lives.items() if key in live}
        if not measure:
            return
        if len(trials) < self.level:
            self._short_s = now_s if self._short_s is None else self._short_s
            if now_s - self._short_s > GRACE_S and self.level > 1:
                self.begin(now_s, self.level)
            return
        self._short_s = None
        if len(trials) > self.level:
            self.begin(now_s, self.level)
            return
        if self._reached_s is None:
            self._reached_s = now_s
        if self._since_s is None:
            self._since_s = self._find_start(self._reached_s, trials)
        if self._since_s is not None:
            for trial in trials:
                rate = rate_of(trial.reports, self._since_s)
                if rate is not None:
                    self._reports.current[trial.key] = rate

    def note_run(self, key: str, now_s: float, *, complete: bool) -> None:
        """Note that a trial has ended; how long it took tells the speed if it is complete."""
        began_s = self._lives.pop(key, None)
        if began_s is None or not complete or now_s <= began_s:
            return
        rate = Rate(-math.log(now_s - began_s), INTERVAL_NOISE**2, 1)
        if began_s >= self._chosen_s:
            self._runs.current[key] = rate
        elif self._chosen_s - began_s >= MOSTLY * (now_s - began_s):
            before = self._known.get(self._previous)
            if before is not None:
                self._runs.learn(key, rate, before)

    def settle_alone(self, now_s: float, trials: Sequence[TrialState]) -> bool:
        """Tell whether a trial's speed alone is known, and keep it then."""
        live = {trial.key for trial in trials}
        since_s = now_s if self._since_s is None else self._since_s
        is_known = bool(self._runs.current)
        for key in self._reports.current:
            is_long = key not in live or now_s - since_s >= LEAST_S
            is_known = is_known or (is_long and self._is_enough(key, live))
        if is_known:
            self._keep(Speed(0.0, 0.0))
        return is_known

    def settle(self, now_s: float, best: int) -> bool | None:
        """Tell whether the level is worth it, and keep its speed; None while that is not sure.

        Args:
            best: The highest known level that was worth it.
        """
        speed, before = self._estimate(now_s), self.progress(best)
        if speed is None or before is None:
            return None
        # Beside more others a trial is no faster: what says so is noise.
        speed = Speed(min(speed.log, self._known[best].log + COMMON_NOISE), speed.variance)
        need = WORTH * (self.level - best)
        if best > 1:
            need = min(need, WORTH_OF_ALL * before)
        bar, error = math.log((before + need) / self.level), math.sqrt(speed.variance)
        is_worth: bool | None = None
        if speed.log - ERRORS_ABOVE * error >= bar:
            is_worth = True
        elif speed.log + ERRORS_BELOW * error < bar:
            is_worth = False
        elif (
            self._reports.intervals() >= LONGEST_INTERVALS * self.level
            or self._runs.intervals() >= LONGEST_RUNS * self.level
        ):
            is_worth = speed.log + error >= bar
        if is_worth is not None:
            self._keep(speed)
        return is_worth

    def progress(self, level: int) -> float | None:
        """Return what trials at a known level get done together, one alone being 1."""
        return level * math.exp(self._known[level].log) if level in self._known else None

    def slowdown(self, level: int) -> float | None:
        """Return how much longer a trial takes than alone at a level, or at the nearest below it
        that was measured; None where none was."""
        return slowdown_at(self.slowdowns(), level)

    def slowdowns(self) -> dict[int, float]:
        """Return how much longer a trial takes than alone, by each level that was measured."""
        return {level: max(1.0, math.exp(-speed.log)) for level, speed in self._known.items()}

    def _is_enough(self, key: str, live: set[str]) -> bool:
        """Tell whether a trial's reports alone tell its speed."""
        rate = self._reports.current.get(key)
        enough = ALONE_INTERVALS if key in live else FEWEST_INTERVALS
        return rate is not None and rate.intervals >= enough

    def _estimate(self, now_s: float) -> Speed | None:
        """Return the level's speed by all that was seen; None where that is too little."""
        parts = []
        is_long = self._since_s is not None and now_s - self._since_s >= LEAST_S
        if is_long and self._reports.intervals() >= max(ALONE_INTERVALS, self.level):
            has_long = self._reports.intervals() >= LONGEST_INTERVALS * self.level
            parts.append(self._reports.estimate(1 if has_long else FEWEST_SCALES))
        if self._runs.intervals() >= self.level:  # or it would be the shortest of them alone
            parts.append(self._runs.estimate(1))
        told = [part for part in parts if part is not None]
        if not told:
            return None
        both = mean(told)
        return Speed(both.log, both.variance + COMMON_NOISE**2)

    def _find_start(self, reached_s: float, trials: Sequence[TrialState]) -> float | None:
        """Return from when on reports tell the speed at a level: when those that trained as it was
        reached have all begun to report, as what starts up is no load yet. None before."""
        if self.level == 1:
            return reached_s
        begun = [
            next((at_s for at_s, _ in trial.reports if at_s >= reached_s), None)
            for trial in trials
            if trial.began_s <= reached_s
        ]
        known = [at_s for at_s in begun if at_s is not None]
        return max([reached_s, *known]) if len(known) == len(begun) else None

    def _keep(self, speed: Speed) -> None:
        self._known[self.level] = speed
        self._reports.settle(speed)
        self._runs.settle(speed)
