"""A card on which trials train at speeds that a written model gives: for tests of the decision.

Time goes by in steps of half a second; nothing is started and nothing waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sweep.core.packing.card import CardState, PackedLevel, ShareLimits, TrialState
from sweep.core.packing.level import Packing

TICK_S = 0.5
ASK_S = 2.0  # between two decisions
Progress = Callable[[int], float]  # what n at once get done together, one alone being 1


def by_points(points: Mapping[int, float]) -> Progress:
    """Return the progress between measured points: level to progress, as straight lines."""
    levels = sorted(points)

    def progress(level: int) -> float:
        if level >= levels[-1]:
            return points[levels[-1]]
        low = max(each for each in levels if each <= level)
        high = min(each for each in levels if each > level)
        part = (level - low) / (high - low)
        return points[low] + part * (points[high] - points[low])

    return progress


@dataclass
class Training:
    """A training of the model.

    Attributes:
        start_s: Alone, of starting up: it reports nothing, but is slowed as all the rest is.
        work_s: Alone, after that.
        every_s: Between two reports, alone; 0 where it reports nothing.
        memory: Bytes it holds in the end; half of them before it is half done.
        scale: Steps a second alone: unlike models have unlike steps.
    """

    key: str
    start_s: float = 4.0
    work_s: float = 10.0
    every_s: float = 2.5
    memory: int = 10**9
    scale: float = 1.0
    noise: float = 0.0
    params: Mapping[str, object] = field(default_factory=dict)
    began_s: float = 0.0
    done_s: float = 0.0  # of all
    reports: list[tuple[float, float]] = field(default_factory=list)

    def held(self) -> int:
        """Return the bytes it holds now."""
        is_late = (self.done_s - self.start_s) * 2 >= self.work_s
        return self.memory if is_late else self.memory // 2

    def train(self, now_s: float, took_s: float) -> None:
        """Go on by as much as takes so long alone."""
        before = self.done_s - self.start_s
        self.done_s += took_s
        done = self.done_s - self.start_s
        if self.every_s and done >= 0 and int(before / self.every_s) < int(done / self.every_s):
            self.reports.append((now_s, self.scale * done))


@dataclass
class Outcome:
    """What became of a simulated study."""

    took_s: float
    levels: list[int]
    finished: int
    ran_out: int
    last: PackedLevel | None
    state: Packing


def simulate(
    trainings: list[Training],
    progress: Progress,
    limits: ShareLimits,
    *,
    packing: Packing | None = None,
    total: int = 140 * 10**9,
    others: int = 0,
    hidden: bool = False,
    fixed: int | None = None,
    seed: int = 0,
) -> Outcome:
    """Train them all, in their order, and say how long that took.

    Args:
        packing: Decides; its state goes through JSON each time.
        fixed: Train so many at once instead.
        hidden: The driver does not say whose memory it is.
    """
    chance = random.Random(seed)
    waiting, live = list(trainings), list[Training]()
    now_s, ran_out, finished, level, levels = 0.0, 0, 0, fixed or 1, list[int]()
    answer: PackedLevel | None = None
    state = (packing or Packing()).to_json()
    alone: list[Training] = []
    while waiting or live or alone:
        if fixed is None and now_s % ASK_S == 0:
            decider = Packing.from_json(state)
            seen = [
                TrialState(
                    each.key,
                    each.began_s,
                    list(each.reports),
                    memory_bytes=None if hidden else each.held(),
                    params=each.params,
                )
                for each in live
            ]
            used = others + sum(each.held() for each in live)
            card = CardState(total, used, None if hidden else others)
            answer = decider.decide(now_s, card, seen, limits)
            state = decider.to_json()
            level = answer.trials
            levels.append(level)
        while len(live) < level and waiting and not alone:
            live.append(waiting.pop(0))
            live[-1].began_s = now_s
        if not live and alone:
            live.append(alone.pop(0))
        for each in live:
            noise = chance.lognormvariate(0.0, each.noise) if each.noise else 1.0
            each.train(now_s, TICK_S * progress(len(live)) / len(live) * noise)
        now_s += TICK_S
        while len(live) > 1 and others + sum(each.held() for each in live) > total:
            killed = live.pop()
            decider = Packing.from_json(state)
            decider.note_out_of_memory(len(live) + 1)
            decider.note_ended(killed.key, now_s, complete=False)
            state, ran_out = decider.to_json(), ran_out + 1
            killed.done_s, killed.reports = 0.0, []
            alone.append(killed)
        for each in [each for each in live if each.done_s >= each.start_s + each.work_s]:
            live.remove(each)
            finished += 1
            decider = Packing.from_json(state)
            decider.note_ended(each.key, now_s, complete=True)
            state = decider.to_json()
    return Outcome(now_s, levels, finished, ran_out, answer, Packing.from_json(state))
