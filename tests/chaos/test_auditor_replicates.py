"""The auditor on trials of several trainings: by seeds, their mean, and what the database keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from tests.chaos.auditor import AttemptRow, Evidence, Line, TrialRow, audit
from tests.chaos.test_auditor import FACTS, attempt_lines, change, stored, value, with_status

TWICE = dataclasses.replace(FACTS, trials=2, replicates=2)
MEANS = [(value(0, 1, 5) + value(0, 3, 5)) / 2, (value(1, 1, 5) + value(1, 2, 5)) / 2]


def seeded(lines: Sequence[Line], seed: int) -> list[Line]:
    return [
        dataclasses.replace(line, seed=seed) if line.word == "begin" else line for line in lines
    ]


def make() -> Evidence:
    """Return a study without a fault: the second training of trial 0 was killed, and went on."""
    lines = [
        *seeded(attempt_lines(0, 1, 0.0, range(6)), 10),
        *seeded(attempt_lines(0, 2, 10.0, range(3), last=""), 2),
        *seeded(attempt_lines(0, 3, 20.0, range(2, 6)), 2),
        *seeded(attempt_lines(1, 1, 0.0, range(6)), 11),
        *seeded(attempt_lines(1, 2, 10.0, range(6)), 2),
    ]
    last = [line for line in lines if line.attempt > 1]
    return with_status(
        Evidence(
            lines=lines,
            trials=[TrialRow(number, "complete", [mean]) for number, mean in enumerate(MEANS)],
            attempts=[
                AttemptRow(0, 1, -0.5, 7.0, "replicate done"),
                AttemptRow(0, 2, 9.5, 14.0, "killed"),
                AttemptRow(0, 3, 19.5, 26.0, "finished"),
                AttemptRow(1, 1, -0.5, 7.0, "replicate done"),
                AttemptRow(1, 2, 9.5, 17.0, "finished"),
            ],
            metrics=stored(last),
            journals=stored(lines),
            state={"word": "running"},
            collected=[
                {
                    "rank": 2 - number,
                    "trial": number,
                    "state": "complete",
                    "value": MEANS[number],
                    "params": {"x": float(number)},
                }
                for number in range(2)
            ],
            folders={(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)},
        )
    )


def test_no_fault() -> None:
    report = audit(TWICE, make())
    assert report.is_clean, report.text()
    assert report.figures["best"] == 1


def last_one_alone(found: Evidence) -> Evidence:
    return change(found, trials=[TrialRow(0, "complete", [value(0, 3, 5)]), found.trials[1]])


def with_seed(found: Evidence, trial: int, attempt: int, seed: int) -> Evidence:
    lines = [
        dataclasses.replace(line, seed=seed)
        if (line.trial, line.attempt, line.word) == (trial, attempt, "begin")
        else line
        for line in found.lines
    ]
    return change(found, lines=lines)


def once_with_the_same_seed(found: Evidence) -> Evidence:
    return with_seed(with_seed(found, 0, 2, 10), 0, 3, 10)


def other_seed_after_a_kill(found: Evidence) -> Evidence:
    return with_seed(found, 0, 3, 3)


def second_seed_of_its_own(found: Evidence) -> Evidence:
    return with_seed(found, 1, 2, 3)


def without(found: Evidence, trial: int, attempt: int) -> Evidence:
    def keep(one: Line | AttemptRow) -> bool:
        number = one.attempt if isinstance(one, Line) else one.number
        return (one.trial, number) != (trial, attempt)

    kept = [line for line in found.lines if keep(line)]
    return change(
        found,
        lines=kept,
        attempts=[row for row in found.attempts if keep(row)],
        metrics=stored([line for line in kept if line.attempt > 1]),
        journals=stored(kept),
        folders=set(found.folders) - {(trial, attempt)},
    )


def trained_once(found: Evidence) -> Evidence:
    return without(found, 1, 2)


def trained_thrice(found: Evidence) -> Evidence:
    more = seeded(attempt_lines(1, 3, 30.0, range(6)), 4)
    return change(
        found,
        lines=[*found.lines, *more],
        attempts=[*found.attempts, AttemptRow(1, 3, 29.5, 37.0, "finished")],
        journals=[*found.journals, *stored(more)],
        folders={*found.folders, (1, 3)},
    )


def first_ones_journal_is_gone(found: Evidence) -> Evidence:
    return change(
        found, journals=[row for row in found.journals if (row.trial, row.attempt) != (0, 1)]
    )


def last_ones_curve_is_gone(found: Evidence) -> Evidence:
    return change(found, metrics=[row for row in found.metrics if row.attempt != 3])


@pytest.mark.parametrize(
    ("plant", "kind", "trials"),
    [
        (last_one_alone, "wrong_values", [0]),
        (once_with_the_same_seed, "wrong_parameters", [0, 1]),
        (other_seed_after_a_kill, "wrong_parameters", [0]),
        (second_seed_of_its_own, "wrong_parameters", [1]),
        (trained_once, "lost", [1]),
        (trained_thrice, "lost", [1]),
        (first_ones_journal_is_gone, "lost_values", [0]),
        (last_ones_curve_is_gone, "lost_values", [0]),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_fault_is_counted(
    plant: Callable[[Evidence], Evidence], kind: str, trials: list[int]
) -> None:
    report = audit(TWICE, plant(make()))
    assert report.trials(kind) == trials, report.text()


def test_one_that_was_killed_at_its_very_end_is_the_same_training() -> None:
    """It was done, and went on from its last checkpoint all the same, to find nothing left."""
    found = make()
    extra = seeded(attempt_lines(1, 3, 30.0, range(6, 6)), 2)
    found = change(
        found,
        lines=[*found.lines, *extra],
        attempts=[*found.attempts, AttemptRow(1, 3, 29.5, 37.0, "finished")],
        folders={*found.folders, (1, 3)},
    )
    report = audit(TWICE, found)
    assert report.is_clean, report.text()
