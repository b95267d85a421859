"""What is taken of an earlier study, whatever the sampler; and that each learns from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Constraint, Objective, Replicates, Study
from sweep.core.trial import Replicate, TrialRecord
from sweep.search import propose, warm_start
from sweep.storage import bulk, replicates, studies
from sweep.storage import records as stored
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.optuna_storage import PostgresStorage
from tests.study_rows import Row, Tried, fill

SPACE = Space(
    (Parameter("x", "float", low=0.0, high=1.0), Parameter("y", "float", low=0.0, high=1.0))
)
BOUND = (Constraint("cost", max=1.0),)
OLD = Study("old", ("true",), (Objective("acc", "maximize"),), SPACE, trials=24, constraints=BOUND)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def corner(count: int, **changes: Any) -> list[Row]:
    """Return trials of which the best break the bound: a peak at x = 0.9, where it costs 1.8.

    A lower one, at x = 0.2, keeps to it.
    """
    rows = []
    for n in range(count):
        x, y = n / (count - 1), (n * 7 % count) / count
        peaks = (math.exp(-(((x - 0.9) / 0.15) ** 2)), math.exp(-(((x - 0.2) / 0.15) ** 2)) / 2)
        given: dict[str, Any] = {
            "values": [max(peaks) - (y - 0.5) ** 2 / 10],
            "params": {"x": x, "y": y},
            "attempts": (Tried(reports=((0, "cost", 2 * x),)),),
            "broken": [2 * x - 1.0],
        }
        rows.append(Row(**(given | changes)))
    return rows


def test_what_breaks_the_relations_is_left_out_with_a_word(db: Database, database_url: str) -> None:
    fill(database_url, OLD, corner(24))
    new = replace(OLD, name="new", constraints=(), warm_start="old", where=("x + y <= 1",))
    found = warm_start.read(db, new)
    assert found is not None
    kept = [row["params"] for row in found.trials]
    assert kept and all(params["x"] + params["y"] <= 1 for params in kept)
    assert found.breaking == 24 - len(kept) > 0
    assert f"{found.breaking} break where" in found.describe(new)


def start(db: Database, study: Study) -> Ledger:
    with db.transaction():
        found = warm_start.read(db, study)
        study_id = studies.insert_study(db, study)
        bulk.insert_waiting_trials(db, study_id, [{} for _ in range(study.trials)])
        assert found is not None
        warm_start.write(db, study_id, found)
    return Ledger(db, study_id, study)


def proposals(ledger: Ledger, count: int) -> list[dict[str, Any]]:
    """Return what the first trials would try, each on its own: none of them has a result."""
    storage = PostgresStorage(ledger.db)
    ids = [int(row[0]) for row in ledger.db.execute("SELECT trial_id FROM trials ORDER BY 1")][-20:]
    return [
        propose.propose(ledger.study, storage, ledger.study_id, trial_id, number)
        for number, trial_id in enumerate(ids[:count])
    ]


def new(sampler: Choice, **changes: Any) -> Study:
    given = {
        "name": "new",
        "trials": 20,
        "warm_start": "old",
        "sampler": sampler,
        "max_parallel": 1,
    }
    return replace(OLD, **(given | changes))


@pytest.mark.parametrize(
    "sampler",
    [
        Choice("tpe", {"startup_trials": 0}),
        pytest.param(Choice("gp"), marks=pytest.mark.long),
        Choice("nsgaii", {"population": 10, "mutation_prob": 0.05}),
    ],
    ids=lambda sampler: sampler.type,
)
def test_constraints_are_learnt_from_an_earlier_study(
    database_url: str, db: Database, sampler
) -> None:
    """The best of the earlier study break the bound: most proposals keep to it, none fails."""
    if sampler.type == "gp":
        pytest.importorskip("torch")
    fill(database_url, OLD, corner(24))
    tried = proposals(start(db, new(sampler)), 12)
    feasible = [params for params in tried if 2 * params["x"] <= 1.0]
    assert len(tried) == 12
    assert len(feasible) >= 9, tried


@pytest.mark.parametrize(
    "sampler",
    [Choice("nsgaii", {"population": 10, "mutation_prob": 0.05}), Choice("cmaes")],
    ids=lambda s: s.type,
)
def test_generations_begin_with_the_earlier_study(database_url: str, db: Database, sampler) -> None:
    """NSGA-II breeds from it and CMA-ES starts there: what they try first is near the best."""
    old = replace(OLD, constraints=())
    rows = [
        Row(values=[-((x - 0.9) ** 2 + (y - 0.1) ** 2)], params={"x": x, "y": y})
        for x, y in ((i / 9, j / 9) for i in range(10) for j in range(10))
    ]
    fill(database_url, old, rows)
    tried = proposals(start(db, new(sampler, constraints=())), 12)
    near = [p for p in tried if abs(p["x"] - 0.9) < 0.25 and abs(p["y"] - 0.1) < 0.25]
    assert len(near) >= 6, tried  # 2 of 12 by chance


@pytest.mark.parametrize("count", [1, 3])
def test_cmaes_starts_from_few_trials_and_lone_values(
    database_url: str, db: Database, count
) -> None:
    """Less than ten trials, and a parameter that has one value only, do not stop it."""
    space = Space((*SPACE, Parameter("one", "float", low=0.5, high=0.5)))
    old = replace(OLD, constraints=(), space=space)
    rows = [Row(values=[0.5], params={"x": 0.9, "y": 0.1, "one": 0.5}) for _ in range(count)]
    fill(database_url, old, rows)
    study = new(Choice("cmaes"), constraints=(), space=space)
    tried = proposals(start(db, study), 4)
    assert all(abs(p["x"] - 0.9) < 0.35 and abs(p["y"] - 0.1) < 0.35 for p in tried), tried


def test_bounds_that_have_changed_are_judged_anew(database_url: str, db: Database) -> None:
    """By what the earlier trials reported, not by what was noted of other bounds."""
    fill(database_url, OLD, corner(5))
    costs = [row.attempts[0].reports[0][2] for row in corner(5)]
    found = warm_start.read(db, new(Choice("tpe"), constraints=(Constraint("cost", max=0.5),)))
    assert found is not None
    assert [row["constraints"] for row in found.trials] == [[cost - 0.5] for cost in costs]
    other = new(Choice("tpe"), constraints=(Constraint("memory", max=1.0),))
    found = warm_start.read(db, other)
    assert found is not None and (len(found.trials), found.left_out) == (0, 5)
    assert found.describe(other) == (
        "the sampler starts with 0 trials of old; 5 do not fit this space and its constraints"
    )


def test_several_trainings_are_judged_by_their_mean(database_url: str, db: Database) -> None:
    """The tables have what the last one reported; under the same bounds and under others."""
    old = replace(OLD, replicates=Replicates(2, 2))
    ledger = fill(database_url, old, corner(5))
    costs = [0.25 * number for number in range(5)]
    for record, cost in zip(records_of(ledger), costs, strict=True):
        done = [
            Replicate(k, k, k, record.values, (cost + off,)) for k, off in ((1, 0.5), (2, -0.5))
        ]
        replicates.write(db, record.trial_id, done)
    for limit in (1.0, 0.5):
        study = new(Choice("tpe"), constraints=(Constraint("cost", max=limit),))
        found = warm_start.read(db, study)
        assert found is not None
        assert [row["constraints"] for row in found.trials] == [[cost - limit] for cost in costs]


def records_of(ledger: Ledger) -> list[TrialRecord]:
    return stored.read_trials(ledger.db, ledger.study_id, ledger.study)


def test_what_was_only_noted_counts_under_the_same_bounds(database_url: str, db: Database) -> None:
    """A trial told from a notebook has its violations, and no reports."""
    fill(database_url, OLD, corner(3, attempts=(), broken=[0.25]))
    found = warm_start.read(db, new(Choice("tpe")))
    assert found is not None
    assert [row["constraints"] for row in found.trials] == [[0.25]] * 3


def test_cmaes_takes_feasible_trials_alone(database_url: str, db: Database) -> None:
    """It knows no constraints, so that what breaks them would lead it there."""
    fill(database_url, OLD, corner(10))
    found = warm_start.read(db, new(Choice("cmaes")))
    assert found is not None
    feasible = [row for row in corner(10) if row.params["x"] <= 0.5]
    assert 0 < len(found.trials) == len(feasible) < 10


def records(*params: Any, values: Sequence[float] = (0.5,)) -> list[TrialRecord]:
    return [TrialRecord(n, n, "complete", tuple(values), each) for n, each in enumerate(params)]


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (Parameter("p", "int", low=1, high=8), 3.0, 3),
        (Parameter("p", "int", low=1, high=8, step=2), 3.0, 3),
        (Parameter("p", "int", low=1, high=8), 3.5, None),
        (Parameter("p", "int", low=1, high=8), 9.0, None),
        (Parameter("p", "int", low=1, high=8), True, None),
        (Parameter("p", "float", low=1, high=8), 3, 3.0),
        (Parameter("p", "float", low=0.0, high=1.0, step=0.1), 0.1 + 0.2, 0.3),
        (Parameter("p", "float", low=0.0, high=1.0, step=0.1), 0.35, None),
        (Parameter("p", "categorical", choices=(1, 3)), 3.0, 3),
        (Parameter("p", "categorical", choices=(1.0, 3.0)), 3, 3.0),
        (Parameter("p", "categorical", choices=(True, False)), 1, None),
        (Parameter("p", "categorical", choices=("3", "a")), 3, None),
        (Parameter("p", "int", low=1, high=8), "3", None),
    ],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_whole_numbers_change_their_type(parameter, value, expected, fixed) -> None:
    """3.0 fits an int and 3 a float, nothing is rounded; what was fixed there as well."""
    study = replace(OLD, constraints=(), space=Space((parameter,)))
    before = replace(study, fixed={"p": value} if fixed else {})
    found = warm_start.reconcile(study, before, records({} if fixed else {"p": value}))
    kept = [row["params"]["p"] for row in found.trials]
    assert [(type(v), v) for v in kept] == (
        [] if expected is None else [(type(expected), expected)]
    )
    assert found.left_out == (expected is None)


def test_results_that_are_not_finite_are_left_out() -> None:
    """A sampler cannot learn from an infinity, and JSON has no word for it."""
    study = replace(OLD, constraints=())
    found = warm_start.reconcile(
        study, study, records({"x": 0.5, "y": 0.5}, values=(float("inf"),))
    )
    assert (len(found.trials), found.left_out) == (0, 1)
