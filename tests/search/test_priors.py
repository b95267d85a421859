"""Priors: what is drawn from them, and that a wrong one is forgotten."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.core.space import Parameter, Prior, Space
from sweep.core.study import Objective, Study
from sweep.search import priors, propose
from sweep.search.design import spread_design
from sweep.storage import PostgresStorage
from tests.search.test_propose import claim, create, make

LR = Parameter("lr", "float", low=1e-5, high=1.0, log=True, prior=Prior(1e-3, 3.0))
X = Parameter("x", "float", low=0.0, high=1.0, prior=Prior(0.3, 0.1))
N = Parameter("n", "int", low=2, high=20, step=3, prior=Prior(8, 3.0))
WIDTH = Parameter("width", "int", low=8, high=512, log=True, prior=Prior(64.0, 2.0))
STEP = Parameter("drop", "float", low=0.0, high=0.5, step=0.1, prior=Prior(0.2, 0.1))
OPT = Parameter("opt", "categorical", choices=("a", ["b", 1], None), prior=Prior(weights=(1, 6, 1)))
PLAIN = Parameter("plain", "float", low=0.0, high=1.0)
MIXED = Space((LR, N, STEP, OPT, PLAIN))

CENTRES = [(LR, 1e-3), (X, 0.3), (N, 8), (WIDTH, 64), (STEP, 0.2), (OPT, ["b", 1])]


@pytest.fixture
def storage(database_url: str) -> Iterator[PostgresStorage]:
    storage = PostgresStorage(database_url)
    yield storage
    storage.database.close()


def drawn(parameter: Parameter, count: int = 2000) -> list[Any]:
    return [priors.believed_value(parameter, (i + 0.5) / count) for i in range(count)]


@pytest.mark.parametrize(("parameter", "centre"), CENTRES)
def test_values_lie_around_the_centre(parameter: Parameter, centre: Any) -> None:
    values = drawn(parameter)
    assert priors.centre(parameter) == centre
    assert all(parameter.contains(value) for value in values)
    if parameter.type == "categorical":
        assert [values.count(choice) for choice in parameter.choices] == [250, 1500, 250]
        return
    assert median(values) == pytest.approx(centre, rel=0.01)
    assert values == sorted(values)
    assert all(type(v) is (int if parameter.type == "int" else float) for v in values)


def test_a_standard_deviation_is_a_factor_on_a_log_scale() -> None:
    share = sum(1e-3 / 3 <= v <= 3e-3 for v in drawn(LR)) / 2000
    assert share == pytest.approx(0.683, abs=0.01)
    assert sum(0.2 <= v <= 0.4 for v in drawn(X)) / 2000 == pytest.approx(0.683, abs=0.01)


@pytest.mark.parametrize("center", [0.0, 1.0])
def test_a_centre_at_an_end(center: float) -> None:
    parameter = Parameter("x", "float", low=0.0, high=1.0, prior=Prior(center, 1e-6))
    assert all(abs(value - center) < 1e-4 for value in drawn(parameter, 50))
    assert priors.belief(Space((parameter,)), {"x": center}) > 5
    assert priors.belief(Space((parameter,)), {"x": 0.5}) < -1e6


@pytest.mark.parametrize("parameter", [LR, X, OPT])
def test_a_belief_is_a_density(parameter: Parameter) -> None:
    """Against that of chance: its mean over points by chance is 1."""
    space = Space((parameter,))
    found = []
    for i in range(4000):
        unit = (i + 0.5) / 4000
        point = {parameter.name: unit} if parameter is X else None
        if parameter is LR:
            point = {"lr": math.exp(math.log(1e-5) * (1 - unit))}
        if parameter is OPT:
            point = {"opt": ("a", '["b", 1]', None)[i % 3]}
        assert point is not None
        found.append(math.exp(priors.belief(space, point)))
    assert sum(found) / len(found) == pytest.approx(1.0, abs=0.01)


def test_an_absent_parameter_has_no_say() -> None:
    assert priors.belief(MIXED, {"plain": 0.5}) == 0.0


def study_of(space: Space, **more: Any) -> Study:
    return make("tpe", space, trials=30, **more)


def test_half_of_the_start_is_believed() -> None:
    """The others are those that they would be without priors."""
    study = study_of(MIXED)
    plain = Space(tuple(Parameter(**{**vars(p), "prior": None}) for p in MIXED))
    rows, even = spread_design(study, 12), spread_design(study_of(plain), 12)
    assert rows[1::2] == even[1::2] and rows[::2] != even[::2]
    first = {"lr": 1e-3, "n": 8, "drop": 0.2, "opt": '["b", 1]'}
    assert {name: rows[0][name] for name in first} == first
    inside = [priors.belief(MIXED, row) > 0 for row in rows]
    assert sum(inside[::2]) >= 5 and sum(inside[1::2]) <= 3
    assert len({row["lr"] for row in rows}) == 12
    assert rows == spread_design(study, 12)


def test_the_start_keeps_to_relations() -> None:
    """Where the centre breaks them, a point near it is taken; where all does, the row stays."""
    study = study_of(Space((X, PLAIN)), where=("x + plain <= 0.9", "x > 0.3"))
    rows = spread_design(study, 12)
    assert all(row["x"] + row["plain"] <= 0.9 and row["x"] > 0.3 for row in rows)
    assert all(row["x"] < 0.6 for row in rows[::2])
    never = study_of(Space((X, PLAIN)), where=("x > 0.9",))
    assert all(row["x"] > 0.9 for row in spread_design(never, 12))


def test_the_first_trial_is_at_the_centre() -> None:
    """Also where relations between the other parameters hold for one draw in ten only."""
    others = [Parameter(name, "int", low=1, high=10) for name in ("a", "b")]
    study = study_of(Space((X, *others)), where=("a == b",))
    rows = spread_design(study, 12)
    assert rows[0]["x"] == 0.3 and all(row["a"] == row["b"] for row in rows)


@pytest.mark.parametrize(("spread", "sign"), [(1e-300, -1), (1e300, 0), (1e12, 0)])
def test_a_spread_beyond_all_measure(spread: float, sign: int) -> None:
    """So narrow that all lies at its centre, or so wide that it says nothing."""
    parameter = Parameter("x", "float", low=0.0, high=1.0, prior=Prior(0.3, spread))
    believed = priors.belief(Space((parameter,)), {"x": 0.9})
    assert (believed < -100) if sign else believed == 0
    values = drawn(parameter, 100)
    assert median(values) == pytest.approx(0.3 if sign else 0.5, abs=0.01)
    assert len(set(values)) == (1 if sign else 100)


def told(x: float, value: float | None, **more: Any) -> FrozenTrial:
    state = TrialState.PRUNED if value is None else TrialState.COMPLETE
    return create_trial(
        state=state, value=value, params={"x": x}, distributions={"x": X.distribution()}, **more
    )


BROKEN = {"system_attrs": {"constraints": [1.0]}}
RIGHT = [told(0.3, 1.0), told(0.32, 1.1), told(0.9, 5.0), told(0.7, 4.0), told(0.35, 3.0)]
CASES: list[tuple[str, list[FrozenTrial], bool, str]] = [
    ("right", RIGHT, True, "minimize"),
    ("wrong", RIGHT, False, "maximize"),
    ("all inside", [told(0.3, float(i)) for i in range(8)], False, "minimize"),
    ("too few", RIGHT[:3], False, "minimize"),
    (
        "pruned come last",
        [*RIGHT[2:4], told(0.8, 3.0), told(0.95, 2.0), *[told(0.3, None)] * 4],
        False,
        "minimize",
    ),
    (
        "what breaks constraints comes last",
        [*(told(0.3, i / 10, **BROKEN) for i in (0, 1)), told(0.9, 5.0), told(0.8, 6.0)],
        False,
        "minimize",
    ),
]


@pytest.mark.parametrize(
    ("trials", "borne_out", "direction"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_results_bear_it_out(trials: list[FrozenTrial], borne_out: bool, direction: str) -> None:
    study = study_of(Space((X,)), objectives=(Objective("m", direction),))
    assert priors.is_borne_out(study, trials) is borne_out


def test_it_is_called_for_less_and_less() -> None:
    study = study_of(Space((X,)))
    called = [priors.is_called_for(study, RIGHT, number) for number in range(2000)]
    assert 4 <= sum(called[10:30]) <= 15 and sum(called[1000:]) <= 15
    wrong = [told(1 - t.params["x"], t.values[0]) for t in RIGHT]
    assert not any(priors.is_called_for(study, wrong, number) for number in range(200))


def run(storage: PostgresStorage, study: Study, count: int, best: float) -> list[dict[str, Any]]:
    """Return what is proposed for trials whose result is the distance of x from the best."""
    study_id = create(storage, study)
    done = []
    for number in range(count):
        trial_id = claim(storage, study_id, number)
        values = propose.propose(study, storage, study_id, trial_id, number)
        value = abs(values["x"] - best) + values.get("plain", 0.0)
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [value])
        done.append(values)
    return done


def test_a_right_prior_is_used_and_a_wrong_one_forgotten(storage: PostgresStorage) -> None:
    for name, best in (("right", 0.3), ("wrong", 0.9)):
        study = make("tpe", Space((X, PLAIN)), trials=24, name=name, max_parallel=1)
        done = run(storage, study, 24, best)
        assert done[0]["x"] == 0.3
        assert any(from_prior(study, done)[10:]) is (name == "right"), (name, done)
        assert min(abs(row["x"] - best) for row in done[10:]) < 0.05


def from_prior(study: Study, done: list[dict[str, Any]]) -> list[bool]:
    rows = [priors.believed_row(study, number) for number in range(len(done))]
    return [given["x"] == row["x"] for given, row in zip(done, rows, strict=True)]


def test_a_gaussian_process_has_priors(storage: PostgresStorage) -> None:
    """What has none is left to it."""
    study = make("gp", Space((X, PLAIN)), trials=13, max_parallel=1)
    done = run(storage, study, 13, 0.3)
    assert done[:10] == spread_design(study, 10)
    assert set(from_prior(study, done)[10:]) == {True, False}


def test_proposals_are_the_same_each_time(storage: PostgresStorage) -> None:
    """Under relations and conditions, too: they follow from history, seed and number."""
    child = Parameter("m", "float", low=0.0, high=1.0, prior=Prior(0.2, 0.1), when={"opt": ("a",)})
    space = Space((X, OPT, child, PLAIN))
    found: list[list[Mapping[str, Any]]] = []
    for name in ("one", "two"):
        study = make(
            "tpe", space, trials=20, name=name, where=("x + plain <= 1.2",), max_parallel=1
        )
        found.append(run(storage, study, 20, 0.3))
    assert found[0] == found[1]
    assert all(row["x"] + row["plain"] <= 1.2 for row in found[0])
    assert all(("m" in row) == (row["opt"] == "a") for row in found[0])
