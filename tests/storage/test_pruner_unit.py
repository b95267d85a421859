"""What a pruner counts, and before which amount it stops no trial."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.core.study import Choice
from sweep.core.trial import Report
from sweep.search import pruning
from sweep.storage import pruner_unit
from tests.study_rows import make_study


def report(step: int, time_s: float = 0.0, **metrics: float) -> Report:
    return Report(step, time_s, metrics)


@pytest.mark.parametrize(
    ("given", "unit", "expected"),
    [
        (report(7, epoch=2.0), "steps", 7),
        (report(7, epoch=2.9), "epochs", 2),
        (report(7, epochs=3.0), "epochs", 3),
        (report(7, loss=1.0), "epochs", None),
        (report(7, epoch=math.nan), "epochs", None),
        (report(7, time_s=1012.9), "seconds", 12),
        (report(7, time_s=999.0), "seconds", 0),  # the clocks of two machines differ
    ],
)
def test_amounts(given: Report, unit: str, expected: int | None) -> None:
    assert pruner_unit.amount(given, unit, 1000.0) == expected


def test_values_by_what_was_used() -> None:
    """Of several reports in one epoch the last counts; those that say no epoch are left out."""
    reports = [
        report(1, acc=0.1, epoch=0),
        report(2, acc=0.2, epoch=0),
        report(3, acc=0.3),
        report(4, loss=1.0, epoch=1),
        report(5, acc=0.5, epoch=1),
    ]
    assert pruner_unit.keyed(reports, "acc", "epochs", 0.0) == {0: 0.2, 1: 0.5}
    assert pruner_unit.keyed(reports, "acc", "steps", 0.0) == {1: 0.1, 2: 0.2, 3: 0.3, 5: 0.5}
    assert pruner_unit.first(reports[2:], "epochs", 0.0) == 1


def trial(steps: list[int], state: TrialState = TrialState.COMPLETE) -> FrozenTrial:
    complete = state == TrialState.COMPLETE
    return create_trial(
        state=state, value=0.5 if complete else None, intermediate_values=dict.fromkeys(steps, 0.5)
    )


RUNNING = TrialState.RUNNING
LONG = list(range(1, 101))


@dataclass
class View:
    """Stands for the sampler's view: the trials, and what is noted with the study."""

    trials: list[FrozenTrial]
    notes: dict[str, Any] = field(default_factory=dict)

    def get_all_trials(self, _study_id: int, deepcopy: bool) -> list[FrozenTrial]:
        return self.trials

    def read_study_note(self, _study_id: int, key: str) -> Any:
        return self.notes.get(key)

    def write_study_note(self, _study_id: int, key: str, value: Any) -> Any:
        return self.notes.setdefault(key, value)


def first(pruner: Choice, view: View, steps: list[int]) -> int | None:
    study = make_study(pruner=pruner)
    return pruning.first_resource(study, view, 1, trial(steps, RUNNING))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pruner", "others", "steps", "expected"),
    [
        # Not before the third report, whatever its step is.
        (Choice("median"), [], [10, 20], None),
        (Choice("median"), [], [10, 20, 30], 30),
        # Not before a tenth of the longest run.
        (Choice("median"), [LONG], list(range(1, 10)), None),
        (Choice("median"), [LONG], list(range(1, 11)), 10),
        (Choice("patient", {"patience": 2, "pruner": {"type": "median"}}), [LONG], [1, 2, 3], None),
        # What the study file says counts as it is.
        (Choice("median", {"min_resource": 1}), [LONG], [1], 1),
        (Choice("threshold", {"upper": 1.0, "warmup": 0}), [LONG], [1], 0),
        (Choice("asha", {"min_resource": 2}), [], [1], 2),
        # Rungs wait for a complete trial.
        (Choice("asha"), [], LONG, None),
        (Choice("asha"), [LONG], [1, 2, 3], 10),
        (Choice("auto"), [LONG], [1, 2, 3], 10),
        (Choice("hyperband"), [[1, 2, 3, 4]], [1, 2, 3], 3),
    ],
)
def test_before_which_amount_nothing_is_stopped(
    pruner: Choice, others: list[list[int]], steps: list[int], expected: int | None
) -> None:
    assert first(pruner, View([trial(steps) for steps in others]), steps) == expected


def test_rungs_stay_what_they_were() -> None:
    """A longer trial that is complete later does not move the rungs of those that are under way."""
    view = View([trial(LONG)])
    assert first(Choice("asha"), view, [1, 2, 3]) == 10
    view.trials = [trial(list(range(1, 1001)))]
    assert first(Choice("asha"), view, [1, 2, 3]) == 10
