"""``auto`` weighs what a proposal costs against how long trials take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Study
from sweep.search import cost, propose, samplers
from sweep.storage import PostgresStorage
from tests.search.test_propose import claim, create, make

SPACE = Space((Parameter("x", "float", low=0.0, high=1.0), Parameter("y", "float", low=0, high=1)))

# Trials, at once, durations in seconds, what proposes.
CASES: list[tuple[int, int, list[float], str]] = [
    (100, 16, [], "tpe"),  # nobody knows yet
    (100, 16, [3.0] * 9, "tpe"),
    (100, 16, [15.0] * 9, "tpe"),  # one process proposes for all slots
    (100, 16, [16.0] * 9, "gp"),
    (100, 4, [10.5] * 9, "tpe"),
    (100, 4, [10.7] * 9, "gp"),
    (100, 3, [11.0] * 9, "tpe"),  # each task proposes itself
    (100, 3, [12.0] * 9, "gp"),
    (100, 16, [3.0, 3.0, 900.0], "tpe"),  # one that is long is none of the rule
    (100, 16, [3.0, 600.0, 900.0], "gp"),
    (100, 100, [99.0], "tpe"),
    (100, 100, [100.0], "gp"),
    (100, 1, [10.0], "tpe"),
    (100, 1, [11.0], "gp"),
    (200, 4, [3600.0], "gp"),
]


@pytest.mark.parametrize(("trials", "parallel", "durations", "expected"), CASES)
def test_what_proposes(trials: int, parallel: int, durations: list[float], expected: str) -> None:
    study = make("auto", SPACE, trials=trials, max_parallel=parallel)
    assert samplers.choose(study)[0] == "gp"
    assert samplers.choose(cost.weigh(study, durations))[0] == expected


# Trials with two objectives, at once, durations in seconds, what proposes.
OF_TWO: list[tuple[int, int, list[float], str]] = [
    (100, 16, [41.0], "tpe"),
    (100, 16, [42.0], "gp"),
    (100, 4, [26.0], "tpe"),
    (100, 4, [27.0], "gp"),
    (100, 1, [27.0], "gp"),
]


@pytest.mark.parametrize(("trials", "parallel", "durations", "expected"), OF_TWO)
def test_two_objectives(trials: int, parallel: int, durations: list[float], expected: str) -> None:
    """A proposal costs more there, and an earlier study's trials count towards fewer."""
    two = (Objective("a"), Objective("b"))
    study = make("auto", SPACE, trials=trials, max_parallel=parallel, objectives=two)
    assert samplers.choose(cost.weigh(study, durations))[0] == expected
    assert samplers.choose(cost.weigh(study, [1e6], earlier=1))[0] == "tpe"


@pytest.mark.parametrize("kind", ["gp", "tpe", "random"])
def test_what_the_user_has_chosen_stays(kind: str) -> None:
    study = make(kind, SPACE, trials=100)
    assert cost.weigh(study, [0.1]) is study


@pytest.mark.parametrize(
    ("parallel", "several", "typical_s", "expected"),
    [
        *((4, False, None, True), (4, False, 2.0, True), (4, False, 1.9, False)),
        *((16, False, 7.9, False), (16, False, 8.0, True)),
        *((4, True, 2.0, False), (4, True, 5.2, True)),
    ],
)
def test_whether_one_process_keeps_up(
    parallel: int, several: bool, typical_s: float | None, expected: bool
) -> None:
    study = make("gp", SPACE, trials=100, max_parallel=parallel)
    if several:
        study = replace(study, objectives=(Objective("a", "minimize"), Objective("b", "minimize")))
    assert cost.keeps_up(study, typical_s) is expected


def test_where_auto_is_tpe_already_it_stays() -> None:
    study = make("auto", SPACE, trials=1000)
    assert cost.weigh(study, [1e6]) is study


def test_what_an_earlier_study_has_counts_too() -> None:
    """A Gaussian process learns from its trials as well."""
    study = make("auto", SPACE, trials=100, max_parallel=1)
    assert samplers.choose(cost.weigh(study, [60.0], earlier=100))[0] == "gp"
    assert samplers.choose(cost.weigh(study, [60.0], earlier=101))[0] == "tpe"


@pytest.mark.parametrize(
    ("kind", "trials", "is_said"),
    [("gp", 300, False), ("gp", 301, True), ("auto", 1000, False), ("tpe", 1000, False)],
)
def test_what_gp_by_name_comes_to(kind: str, trials: int, is_said: bool) -> None:
    said = cost.warn(make(kind, SPACE, trials=trials))
    assert (f"of {trials} trials it learns from 300" in said) is is_said


def test_check_says_so() -> None:
    study = make("auto", SPACE, trials=100, max_parallel=16)
    name, why = cost.describe_choice(study)
    assert name == "gp" and why.endswith("; tpe while trials take less than 16 s")
    assert cost.describe_choice(make("tpe", SPACE)) == ("tpe", "as the study file says")


def told(state: TrialState, seconds: float | None) -> FrozenTrial:
    trial = create_trial(state=state, value=1.0 if state == TrialState.COMPLETE else None)
    trial.datetime_start = datetime(2026, 1, 1)
    ended = None if seconds is None else trial.datetime_start + timedelta(seconds=seconds)
    trial.datetime_complete = ended
    return trial


def test_durations_are_those_of_complete_trials() -> None:
    found = [
        told(TrialState.COMPLETE, 5.0),
        told(TrialState.FAIL, 1.0),
        told(TrialState.PRUNED, 1.0),
        told(TrialState.COMPLETE, 7.5),
    ]
    assert cost.durations_of(found) == [5.0, 7.5]


@pytest.fixture
def storage(database_url: str) -> Iterator[PostgresStorage]:
    storage = PostgresStorage(database_url)
    yield storage
    storage.database.close()


@pytest.mark.parametrize(("least_s", "expected"), [(1e9, {"tpe"}), (0.0, {"gp"})])
def test_a_task_asks_what_is_worth_it(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch, least_s: float, expected: set[str]
) -> None:
    """After the start, in which chance proposes."""
    asked: set[str] = set()
    build = samplers.build_sampler

    def note(study: Study, *more: Any) -> Any:
        asked.add(samplers.choose(study)[0])
        return build(study if study.sampler.type == "random" else as_random(study), *more)

    def as_random(study: Study) -> Study:
        return make("random", SPACE, name=study.name)

    monkeypatch.setattr(propose, "build_sampler", note)
    monkeypatch.setattr(cost, "least_trial_s", lambda _: least_s)
    study = make("auto", SPACE, trials=30, max_parallel=1)
    assert study.sampler == Choice("auto")
    study_id = create(storage, study)
    for number in range(12):
        trial_id = claim(storage, study_id, number)
        propose.propose(study, storage, study_id, trial_id, number)
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [float(number)])
    assert asked - {"random"} == expected
