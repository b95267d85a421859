"""Every sampler under relations, on a real database: what it proposes keeps to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from sweep.core.space import Parameter, Space
from sweep.core.study import Study
from sweep.search import propose, rejection
from sweep.search.view import SamplerView, broken_by
from sweep.storage import PostgresStorage
from tests.search.test_propose import claim, create, make

SPACE = Space((Parameter("x", "float", low=0.0, high=1.0), Parameter("y", "float", low=0, high=1)))
MIXED = Space(
    (
        *SPACE.parameters,
        Parameter("opt", "categorical", choices=("sgd", "adam", ["a", 1])),
        Parameter("m", "float", low=0.0, high=1.0, when={"opt": ("sgd",)}),
    )
)
# Less is better towards x = y = 1, and that is not allowed.
WHERE = ("x + y <= 0.8", "m < x")
CASES: list[Any] = [
    ("random", MIXED, {}),
    ("qmc", MIXED, {}),
    ("tpe", MIXED, {}),
    pytest.param("tpe", SPACE, {"multivariate": False}, marks=pytest.mark.long),
    pytest.param("gp", MIXED, {}, marks=pytest.mark.long),  # test_propose has it in every form
    ("auto", SPACE, {}),
    ("cmaes", SPACE, {}),
    ("nsgaii", MIXED, {"population": 6}),
]


@pytest.fixture
def storage(database_url: str) -> Iterator[PostgresStorage]:
    storage = PostgresStorage(database_url)
    yield storage
    storage.database.close()


def is_valid(values: Mapping[str, Any]) -> bool:
    return bool(values["x"] + values["y"] <= 0.8 and values.get("m", -1) < values["x"])


def run(storage: PostgresStorage, study: Study, study_id: int, numbers: range) -> list[dict]:
    done = []
    for number in numbers:
        trial_id = claim(storage, study_id, number)
        values = propose.propose(study, storage, study_id, trial_id, number)
        results = [-values["x"] - values["y"], values["x"]][: len(study.objectives)]
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, results)
        done.append(values)
    return done


@pytest.mark.parametrize(("sampler", "space", "options"), CASES)
def test_every_sampler(
    storage: PostgresStorage, sampler: str, space: Space, options: Mapping[str, Any]
) -> None:
    """Nothing against them is proposed, and those that learn still go to the edge."""
    # A GP's proposal takes 0.1 to 1 s; its first ten are random.
    trials = {"gp": 12, "auto": 14}.get(sampler, 24)
    study = make(sampler, space, trials=trials, options=options, where=WHERE, max_parallel=1)
    done = run(storage, study, create(storage, study), range(trials))
    assert all(map(is_valid, done)), [row for row in done if not is_valid(row)]
    if sampler == "tpe":
        assert max(row["x"] + row["y"] for row in done[10:]) > 0.7


@pytest.mark.parametrize("sampler", ["tpe", "nsgaii"])
def test_several_objectives_and_constraints(storage: PostgresStorage, sampler: str) -> None:
    from sweep.core.study import Constraint, Objective

    study = make(
        sampler,
        SPACE,
        trials=20,
        where=WHERE,
        objectives=(Objective("a"), Objective("b")),
        constraints=(Constraint("c", max=1.0),),
    )
    assert all(map(is_valid, run(storage, study, create(storage, study), range(20))))


def test_a_sampler_that_insists(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance has the last word, and after that a point that is known; the same each time."""
    always = optuna.samplers.PartialFixedSampler
    fixed = {"x": 0.9, "y": 0.9}
    monkeypatch.setattr(
        propose, "build_sampler", lambda *_: always(fixed, optuna.samplers.RandomSampler(seed=1))
    )
    study = make("tpe", SPACE, where=WHERE)
    study_id = create(storage, study)
    done = run(storage, study, study_id, range(3))
    assert all(map(is_valid, done)) and len({row["x"] for row in done}) == 3
    monkeypatch.setattr(rejection, "valid_point", lambda *_: None)
    assert all(map(is_valid, run(storage, study, study_id, range(3, 6))))


def test_what_a_user_fixes_is_kept(storage: PostgresStorage) -> None:
    """A part is completed; what breaks a relation by itself runs as it was given."""
    study = make("tpe", SPACE, where=WHERE)
    study_id = create(storage, study)
    run(storage, study, study_id, range(12))
    for number, fixed in ((12, {"x": 0.7}), (13, {"x": 0.9, "y": 0.9}), (14, {"x": 0.95})):
        trial_id = claim(storage, study_id, number)
        storage.set_trial_system_attr(trial_id, "fixed_params", fixed)
        values = propose.propose(study, storage, study_id, trial_id, number)
        assert values.items() >= fixed.items()
        assert is_valid(values) == (number == 12)


@pytest.mark.parametrize("marked", [False, True])
def test_samplers_see_what_breaks_as_infeasible(storage: PostgresStorage, marked: bool) -> None:
    """A told trial, and a proposal that was rejected; pruners and rankings do not."""
    study = make("tpe", SPACE, where=WHERE)
    study_id = create(storage, study)
    run(storage, study, study_id, range(10))
    told = claim(storage, study_id, 10)
    kinds = {p.name: p.distribution() for p in study.space}
    storage.set_trial_params(told, {name: (0.9, kinds[name]) for name in "xy"}, study_id)
    storage.set_trial_state_values(told, TrialState.COMPLETE, [-1.8])
    view = SamplerView(storage, failures=True, marked=marked, broken=broken_by(study))
    view.reject(study_id, {name: (0.8, kinds[name]) for name in "xy"}, 12)
    assert len(view.get_all_trials(study_id)) == 11  # too early
    view.reject(study_id, {name: (0.8, kinds[name]) for name in "xy"}, 11)
    seen = view.get_all_trials(study_id)
    assert len(seen) == 12
    bad = [t for t in seen if max(t.system_attrs.get("constraints", [0])) > 0]
    assert sorted(t.params["x"] for t in bad) == [0.8, 0.9]
    assert all(t.state == TrialState.COMPLETE for t in bad)
    best = [t.values[0] for t in seen if t not in bad]
    assert all(t.values == [max(best)] for t in bad)
    assert storage.get_trial(told).values == [-1.8]
    assert [t.number for t in view.told(study_id)] == list(range(11))


def test_a_proposal_is_the_same_each_time(storage: PostgresStorage) -> None:
    """It follows from the history, the seed and the number, rejections included."""
    made = []
    for name in ("one", "two"):
        study = make("tpe", SPACE, where=WHERE, name=name)
        made.append(run(storage, study, create(storage, study), range(16)))
    assert made[0] == made[1]
