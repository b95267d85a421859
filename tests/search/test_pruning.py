"""Verdicts from memory are Optuna's own, on histories drawn by chance."""

from __future__ import annotations

import math
import random
from typing import Any

import optuna
import pytest
from optuna.pruners import BasePruner, MedianPruner, PercentilePruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.search.pruning import Curves, is_quick, judge

STATES = (TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Read:
    """What a History has read."""

    def __init__(self) -> None:
        self.finished_order: list[FrozenTrial] = []
        self.generation = 0


def draw_value(chance: random.Random) -> float:
    odd = (math.nan, math.inf, -math.inf)
    return chance.choice(odd) if chance.random() < 0.1 else round(chance.uniform(0, 1), 1)


def draw_trial(chance: random.Random) -> FrozenTrial:
    steps = {s: draw_value(chance) for s in range(6) if chance.random() < 0.8}
    state = chance.choice(STATES)
    if state == TrialState.PRUNED and not steps:
        state = TrialState.FAIL
    value = chance.random() if state == TrialState.COMPLETE else None
    return create_trial(state=state, value=value, intermediate_values=steps)


def draw_pruner(chance: random.Random) -> PercentilePruner:
    options = {
        "n_startup_trials": chance.choice([0, 1, 5]),
        "n_warmup_steps": chance.choice([0, 2]),
        "interval_steps": chance.choice([1, 2]),
        "n_min_trials": chance.choice([1, 4]),
    }
    if chance.random() < 0.3:
        return MedianPruner(**options)
    return PercentilePruner(chance.choice([0.0, 25.0, 60.0, 100.0]), **options)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinities
def test_verdicts_are_optunas(seed: int) -> None:
    """For each length of a running trial, while the history grows and once loses a trial."""
    chance = random.Random(seed)
    direction = chance.choice(["minimize", "maximize"])
    pruner, read = draw_pruner(chance), Read()
    curves = Curves(read)  # type: ignore[arg-type]
    for round_ in range(4):
        if round_ == 2 and read.finished_order:  # given back
            read.finished_order = read.finished_order[1:]
            read.generation += 1
        read.finished_order += [draw_trial(chance) for _ in range(chance.randrange(8))]
        curves.follow()
        study = optuna.create_study(direction=direction)
        study.add_trials(read.finished_order)
        running = {s: draw_value(chance) for s in range(6) if chance.random() < 0.9}
        for length in range(len(running) + 1):
            steps = dict(list(running.items())[:length])
            trial = create_trial(state=TrialState.RUNNING, intermediate_values=steps)
            expected = pruner.prune(study, trial)
            assert judge(pruner, steps, curves, study.direction) == expected, (steps, round_)


@pytest.mark.parametrize(
    ("pruner", "quick"),
    [(MedianPruner(), True), (PercentilePruner(10.0), True), (SuccessiveHalvingPruner(), False)],
)
def test_which_are_judged_here(pruner: BasePruner, quick: bool) -> None:
    """The others are Optuna's affair; so is a class that somebody derived."""

    class Derived(MedianPruner):
        def prune(self, study: Any, trial: Any) -> bool:
            return True

    assert is_quick(pruner) == quick
    assert not is_quick(Derived())
