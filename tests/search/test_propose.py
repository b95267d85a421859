"""Samplers and pruners on a real database: proposals, verdicts, and what they are shown."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.core.attributes import CONSTRAINTS, REPLICATES
from sweep.core.errors import InputError, StaleAttempt, SweepError
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Constraint, Objective, Replicates, Study
from sweep.search import design, propose, pruning, samplers
from sweep.search.view import bounded, by_means, view
from sweep.storage import PostgresStorage
from sweep.storage.bulk import insert_waiting_trials

NUMBERS = Space(
    (Parameter("x", "float", low=-5.0, high=5.0), Parameter("n", "int", low=1, high=64, log=True))
)
MIXED = Space(
    (
        *NUMBERS.parameters,
        Parameter("optimizer", "categorical", choices=("sgd", "adamw", ["a", 1])),
        Parameter("momentum", "float", low=0.0, high=0.99, when={"optimizer": ("sgd",)}),
        Parameter("nesterov", "categorical", choices=(True, False), when={"optimizer": ("sgd",)}),
        Parameter("drop", "float", low=0.0, high=0.5, step=0.25),
    )
)
STEPPED = Space(
    (
        Parameter("x", "float", low=-5.0, high=5.0, step=2.5),
        *MIXED.parameters[2:3],
        Parameter("momentum", "float", low=0.0, high=0.9, step=0.3, when={"optimizer": ("sgd",)}),
    )
)
SAMPLERS: list[Any] = [
    ("auto", MIXED, {}),
    ("grid", STEPPED, {}),
    ("random", MIXED, {}),
    ("qmc", MIXED, {"sequence": "halton"}),
    ("tpe", MIXED, {"startup_trials": 5}),
    ("tpe", MIXED, {"startup_trials": 5, "multivariate": True, "candidates": 12}),
    ("gp", MIXED, {"startup_trials": 18}),
    pytest.param(
        "gp", NUMBERS, {"startup_trials": 20, "deterministic": True}, marks=pytest.mark.long
    ),
    ("cmaes", NUMBERS, {"population": 4}),
    pytest.param("cmaes", NUMBERS, {"sigma0": 0.2, "startup_trials": 3}, marks=pytest.mark.long),
    ("nsgaii", MIXED, {"population": 6}),
]


@pytest.fixture
def storage(database_url: str) -> Iterator[PostgresStorage]:
    storage = PostgresStorage(database_url)
    yield storage
    storage.database.close()


def make(sampler: str, space: Space, trials: int = 30, **more: Any) -> Study:
    given: dict[str, Any] = {
        "name": "s",
        "command": ("true",),
        "objectives": (Objective("m"),),
        "space": space,
        "trials": trials,
        "sampler": Choice(sampler, more.pop("options", {})),
    }
    return Study(**given | more)


def create(storage: PostgresStorage, study: Study, rows: Sequence[Any] = ()) -> int:
    directions = [StudyDirection[word.upper()] for word in study.directions]
    study_id = storage.create_new_study(directions, study.name)
    with storage.database.transaction():
        insert_waiting_trials(storage.database, study_id, list(rows) or [{}] * study.trials)
    return study_id


def claim(storage: PostgresStorage, study_id: int, number: int) -> int:
    trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
    assert storage.set_trial_state_values(trial_id, TrialState.RUNNING)
    return trial_id


def loss(values: Mapping[str, Any]) -> float:
    momentum = values.get("momentum", 0.5)
    return (values["x"] - 1) ** 2 + math.log(values.get("n", 1)) + (momentum - 0.9) ** 2


def run(
    storage: PostgresStorage, study: Study, numbers: Sequence[int], study_id: int
) -> list[dict[str, Any]]:
    """Propose, train and finish trials one after another; return their training values."""
    done = []
    for number in numbers:
        trial_id = claim(storage, study_id, number)
        stored = propose.propose(study, storage, study_id, trial_id, number)
        values = study.space.from_optuna(stored)
        results = [loss(values), -values["x"]][: len(study.objectives)]
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, results)
        done.append(values)
    return done


@pytest.mark.parametrize(("sampler", "space", "options"), SAMPLERS)
def test_every_sampler(
    storage: PostgresStorage, sampler: str, space: Space, options: Mapping[str, Any]
) -> None:
    """Each trial has exactly the parameters that exist beside its values; nothing warns."""
    trials = {"grid": 20, "gp": 22}.get(sampler, 30)  # a GP's proposal takes 0.1 to 1 s
    study = make(sampler, space, trials=trials, options=options)
    study_id = create(storage, study)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = run(storage, study, range(study.trials), study_id)
    for values in done:
        active = [p for p in space if p.is_active(values)]
        assert list(values) == [p.name for p in active]
        assert all(p.contains(values[p.name]) for p in active)
    assert len({json.dumps(values) for values in done}) > 15
    frozen = storage.get_all_trials(study_id)
    assert [space.from_optuna(trial.params) for trial in frozen] == done


@pytest.mark.parametrize(
    ("sampler", "options"), [("nsgaii", {"population": 5}), ("tpe", {"startup_trials": 5})]
)
def test_two_objectives(storage: PostgresStorage, sampler: str, options: Any) -> None:
    """Several objectives work, maximised and minimised."""
    objectives = (Objective("loss", "minimize"), Objective("gain", "maximize"))
    study = make(sampler, MIXED, trials=20, options=options, objectives=objectives)
    study_id = create(storage, study)
    run(storage, study, range(20), study_id)
    loaded = optuna.load_study(study_name="s", storage=storage)
    assert loaded.best_trials


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsgaii"])
def test_proposal_follows_from_history_seed_and_number(
    storage: PostgresStorage, sampler: str
) -> None:
    """The same history gives the same proposal, another seed or number another one."""
    proposals: dict[tuple[str, int, int], dict[str, Any]] = {}
    for name, seed, number in [("a", 0, 12), ("b", 0, 12), ("c", 1, 12), ("d", 0, 13)]:
        study = make(sampler, MIXED, name=name, seed=seed, options={})
        history = [random_row(study, i) for i in range(12)]
        study_id = create(storage, study, [*history, {}, {}])
        for i in range(12):
            trial_id = claim(storage, study_id, i)
            stored = storage.get_trial(trial_id).params
            value = loss(MIXED.from_optuna(stored))
            storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [value])
        fresh = PostgresStorage(storage.database)
        trial_id = claim(fresh, study_id, number)
        proposals[name, seed, number] = propose.propose(study, fresh, study_id, trial_id, number)
        # A repeat, as after a lost answer, changes nothing.
        again = propose.propose(study, fresh, study_id, trial_id, number)
        assert again == proposals[name, seed, number]
    first, same, seeded, numbered = proposals.values()
    assert first == same
    if sampler != "gp":  # its choice is the maximum of a smooth function, whatever the start
        assert seeded != first and numbered != first


def random_row(study: Study, number: int) -> dict[str, Any]:
    """Return a waiting trial whose point does not depend on the study's seed."""
    point = propose.random_point(make("random", study.space), number)
    return {"params": propose.internal(study, point)}


@pytest.mark.parametrize("direction", [StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE])
@pytest.mark.parametrize("best", [1e-9, 0.5, 1e12])
def test_what_breaks_a_bound_ranks_last_by_how_much(direction: StudyDirection, best: float) -> None:
    """For cmaes, which sees no constraint: its value is behind all that keep to it."""
    sign = -1 if direction == StudyDirection.MAXIMIZE else 1
    trials = []
    for values, broken in ((best, -1.0), (3 * best, 0.0), (best / 2, 2e-9), (best / 3, 5e6)):
        trial = create_trial(state=TrialState.COMPLETE, value=sign * values)
        trial.system_attrs = {"constraints": [broken]}
        trials.append(trial)
    seen = [sign * trial.value for trial in view(trials, [direction], ranked=True)]
    assert seen[:2] == [best, 3 * best]
    assert seen[1] < seen[2] < seen[3] < math.inf
    assert [trial.value for trial in view(trials, [direction])] == [t.value for t in trials]


def test_tpe_finds_better_than_random(storage: PostgresStorage) -> None:
    """Proposals after the start are twice as good as those ten, which know nothing."""
    study = make("tpe", NUMBERS, trials=40)
    done = run(storage, study, range(40), create(storage, study))
    losses = [loss(values) for values in done]
    assert statistics.mean(losses[10:]) < statistics.mean(losses[:10]) / 2


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsgaii"])
def test_a_late_start_is_the_one_that_was_planned(storage: PostgresStorage, sampler: str) -> None:
    """Launch lays out what starts together; the rest of the start is the same spread design."""
    study = make(sampler, MIXED, max_parallel=3)
    rows = propose.first_rows(study, study.trials)
    assert [bool(row) for row in rows] == [True] * 3 + [False] * 27
    study_id = create(storage, study, rows)
    whole = design.spread_design(study, 10)
    for number in (3, 9):
        got = propose.propose(study, storage, study_id, claim(storage, study_id, number), number)
        assert got == whole[number]


def test_running_trials_count_as_liars(storage: PostgresStorage) -> None:
    """Proposals that are made while others run keep away from theirs."""
    study = make("tpe", NUMBERS, trials=30)
    study_id = create(storage, study)
    run(storage, study, range(12), study_id)
    proposals = [
        propose.propose(study, storage, study_id, claim(storage, study_id, number), number)
        for number in range(12, 20)
    ]
    assert len({proposal["x"] for proposal in proposals}) == 8


@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "cmaes"])
def test_fixed_parameters_are_honoured(storage: PostgresStorage, sampler: str) -> None:
    """What the user fixed for a trial stays, and the rest is completed."""
    study = make(sampler, NUMBERS if sampler == "cmaes" else MIXED)
    fixed = design.stored_point(study, {"x": 2})
    if sampler != "cmaes":
        fixed |= design.stored_point(study, {"optimizer": "sgd", "nesterov": False})
    study_id = create(storage, study, [{"fixed_params": fixed}, {}])
    got = propose.propose(study, storage, study_id, claim(storage, study_id, 0), 0)
    assert {name: got[name] for name in fixed} == fixed
    assert set(got) == ({"x", "n"} if sampler == "cmaes" else set(MIXED.names()))


def test_fixed_design_agrees_with_a_late_proposal(storage: PostgresStorage) -> None:
    """A trial without parameters gets at its pull what launch would have written."""
    for sampler in ("random", "qmc"):
        study = make(sampler, MIXED, name=sampler, trials=5)
        study_id = create(storage, study)
        trial_id = claim(storage, study_id, 3)
        got = propose.propose(study, storage, study_id, trial_id, 3)
        assert got == (propose.fixed_design(study) or [])[3]


def test_internal_rows_read_back(storage: PostgresStorage) -> None:
    """A design that is written in bulk reads back equal through Optuna."""
    study = make("random", MIXED, trials=20)
    design = propose.fixed_design(study) or []
    rows = [{"params": propose.internal(study, row)} for row in design]
    study_id = create(storage, study, rows)
    assert [trial.params for trial in storage.get_all_trials(study_id)] == design


def test_proposal_under_a_stale_token_is_refused(storage: PostgresStorage) -> None:
    """An attempt that lost its trial writes no parameters."""
    study = make("tpe", NUMBERS)
    study_id = create(storage, study)
    trial_id = claim(storage, study_id, 0)
    bound = PostgresStorage(storage.database, token="gone")
    with pytest.raises(StaleAttempt):
        propose.propose(study, bound, study_id, trial_id, 0)
    assert storage.get_trial(trial_id).params == {}


def finished(number: int, state: TrialState, values: Any = None, **attrs: Any) -> FrozenTrial:
    trial = create_trial(state=state, values=values, user_attrs=attrs)
    trial.number = trial._trial_id = number
    return trial


END = "sweep:end"
COMPLETE, FAIL, RUNNING = TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING


def test_view() -> None:
    """Paused looks pruned, diverged counts as the worst finite value, failures stay failures."""
    trials = [
        finished(0, COMPLETE, [1.0]),
        finished(1, COMPLETE, [3.0]),
        finished(2, COMPLETE, [math.inf]),
        finished(3, FAIL, **{END: {"state": "failed", "outcome": "diverged"}}),
        finished(4, FAIL, **{END: {"state": "failed", "outcome": "error"}}),
        finished(5, FAIL),
        finished(6, RUNNING),
        finished(7, RUNNING),
        finished(8, TrialState.WAITING),
    ]
    seen = view(trials, [StudyDirection.MINIMIZE], paused={6})
    assert [(trial.number, trial.state.name, trial.values) for trial in seen] == [
        (0, "COMPLETE", [1.0]),
        (1, "COMPLETE", [3.0]),
        (2, "COMPLETE", [3.0]),
        (3, "COMPLETE", [3.0]),
        (4, "FAIL", None),
        (5, "FAIL", None),
        (6, "PRUNED", None),
        (7, "RUNNING", None),
    ]
    assert trials[3].state == FAIL and trials[6].state == RUNNING
    best_last = view(trials, [StudyDirection.MAXIMIZE])
    assert [trial.values for trial in best_last[2:4]] == [[1.0], [1.0]]
    alone = view(trials[3:4], [StudyDirection.MINIMIZE])
    assert [trial.state for trial in alone] == [FAIL]


def test_view_of_two_objectives() -> None:
    """Each objective has its own worst value."""
    trials = [
        finished(0, COMPLETE, [1.0, 5.0]),
        finished(1, COMPLETE, [3.0, 7.0]),
        finished(2, FAIL, **{END: {"state": "failed", "outcome": "diverged"}}),
    ]
    seen = view(trials, [StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE])
    assert seen[2].values == [3.0, 5.0]


def test_a_long_history_is_bounded() -> None:
    """The best half, a quarter of the most recent, an even choice of the rest; what runs or failed
    is shown beside, in its order."""
    values = [5.0, 1.0, 9.0, 2.0, 8.0, 7.0, 3.0, 6.0]
    trials = [finished(n, COMPLETE, [value]) for n, value in enumerate(values)]
    trials[5:5] = [finished(20, FAIL), finished(21, RUNNING)]

    def shown(most: int, direction: StudyDirection = StudyDirection.MINIMIZE) -> list[int]:
        return [trial.number for trial in bounded(trials, [direction], most)]

    assert shown(4) == [0, 1, 3, 20, 21, 7]
    assert shown(4, StudyDirection.MAXIMIZE) == [0, 2, 4, 20, 21, 7]
    assert shown(5) == [0, 1, 3, 4, 20, 21, 7]
    assert shown(7) == [0, 1, 2, 3, 4, 20, 21, 6, 7]
    assert shown(8) == [0, 1, 2, 3, 4, 20, 21, 5, 6, 7]


def test_a_bounded_history_ranks_fronts_and_what_breaks_constraints() -> None:
    """The newer of two equally good ones; of what breaks a constraint none is among the best."""
    directions = [StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE]
    points = [[0.0, 9.0], [1.0, 8.0], [0.0, 5.0], [2.0, 9.9], [0.5, 8.0], [4.0, 1.0], [9.0, 0.0]]
    trials = [finished(n, COMPLETE, point) for n, point in enumerate(points)]
    trials[0].system_attrs = {CONSTRAINTS: [2.0]}
    assert [t.number for t in bounded(trials, directions, 4)] == [0, 3, 4, 6]
    assert [t.number for t in bounded(trials[:6], directions, 4)] == [0, 3, 4, 5]
    lost = [finished(n, COMPLETE, [math.inf]) for n in range(8)]
    assert [t.number for t in bounded(lost, [StudyDirection.MINIMIZE], 4)] == [0, 2, 4, 7]


def test_gp_is_shown_so_many_and_repeats_none_of_the_others(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it no longer learns from is still known where duplicates are drawn again."""
    monkeypatch.setattr("sweep.search.propose.GP_MOST", 4)
    study = make("gp", Space((Parameter("n", "int", low=0, high=8),)), trials=30)
    study = dataclasses.replace(study, duplicates="resample")
    study_id = create(storage, study)
    for value in range(8):
        trial_id = storage.create_new_trial(study_id)
        kind = study.space.get("n").distribution()
        storage.set_trial_param(trial_id, "n", float(value), kind)
        storage.set_trial_state_values(trial_id, COMPLETE, [float(value)])
    view, _ = propose.look(study, storage, study_id)
    shown = view.get_all_trials(study_id)
    assert [trial.params["n"] for trial in shown] == [0, 1, 2, 7]
    assert [trial.params["n"] for trial in view.whole(study_id)] == list(range(8))
    trial_id = storage.create_new_trial(study_id)
    assert propose.propose(study, storage, study_id, trial_id, 8) == {"n": 8}


def noted(number: int, *values: float, bounded: Sequence[float] = ()) -> FrozenTrial:
    """Return a running trial that has been trained so many times."""
    done = [
        {"number": n, "seed": 0, "attempt": n, "values": [value], "bounded": list(bounded)}
        for n, value in enumerate(values, 1)
    ]
    return finished(number, RUNNING, **({REPLICATES: done} if done else {}))


def test_an_open_trial_counts_by_the_mean_of_its_replicates() -> None:
    study = dataclasses.replace(make("tpe", NUMBERS), replicates=Replicates(2, 4))
    trials = [noted(0, 2.0, 4.0), noted(1), noted(2, math.inf), finished(3, COMPLETE, [1.0])]
    seen = [by_means(study, trial) for trial in trials]
    assert [(t.state.name, t.values) for t in seen] == [
        ("COMPLETE", [3.0]),
        ("RUNNING", None),
        ("RUNNING", None),
        ("COMPLETE", [1.0]),
    ]
    assert trials[0].state == RUNNING
    odd = finished(4, RUNNING, **{REPLICATES: [{"values": [1.0, 2.0]}, {"values": ["?"]}]})
    assert by_means(study, odd) is odd


def test_an_open_trial_breaks_constraints_by_its_mean() -> None:
    study = dataclasses.replace(
        make("tpe", NUMBERS),
        replicates=Replicates(3, 3),
        constraints=(Constraint("latency", max=5.0),),
    )
    seen = by_means(study, noted(0, 1.0, 2.0, bounded=[8.0]))
    assert seen.system_attrs[CONSTRAINTS] == [3.0]
    without = noted(0, 1.0)
    assert by_means(study, without) is without


@pytest.mark.parametrize(
    ("sampler", "expected"), [("tpe", "COMPLETE"), ("gp", "COMPLETE"), ("nsgaii", "RUNNING")]
)
def test_which_samplers_see_means(storage: PostgresStorage, sampler: str, expected: str) -> None:
    """As they stand at each proposal; what is told of a trial itself stays."""
    study = dataclasses.replace(make(sampler, NUMBERS), replicates=Replicates(2, 2))
    study_id = create(storage, study)
    trial_id = storage.create_new_trial(study_id)

    def look() -> FrozenTrial:
        return propose.look(study, storage, study_id)[0].get_all_trials(study_id)[0]

    assert look().state == RUNNING
    storage.set_trial_user_attr(trial_id, REPLICATES, noted(0, 2.5).user_attrs[REPLICATES])
    assert look().state.name == expected
    view, _ = propose.look(study, storage, study_id)
    assert view.told(study_id)[0].state == RUNNING


def test_tpe_avoids_where_trials_diverge(storage: PostgresStorage) -> None:
    """With every trial above x = 0 diverged, and the best just below, proposals keep below.

    Were diverged trials ignored, 18 to 25 of the last 25 would lie above (6 seeds); now 9 to 11.
    """
    study = make("tpe", Space((Parameter("x", "float", low=-5.0, high=5.0),)), trials=40)
    study_id = create(storage, study)
    proposed = []
    for number in range(40):
        trial_id = claim(storage, study_id, number)
        x = propose.propose(study, storage, study_id, trial_id, number)["x"]
        proposed.append(x)
        if x > 0:
            note = {"state": "failed", "outcome": "diverged"}
            storage.set_trial_user_attr(trial_id, END, note)
            storage.set_trial_state_values(trial_id, FAIL)
        else:
            storage.set_trial_state_values(trial_id, COMPLETE, [-x])  # best at the edge
    assert sum(x > 0 for x in proposed[15:]) < 15


def paused_trial(storage: PostgresStorage, study_id: int, number: int) -> int:
    trial_id = claim(storage, study_id, number)
    storage.database.execute(
        "INSERT INTO sweep_attempt (trial_id, number, token, host, outcome) "
        "VALUES (%s, 1, %s, 'h', 'paused')",
        (trial_id, f"t{number}"),
    )
    return trial_id


def test_paused_trials_are_seen_as_pruned(storage: PostgresStorage) -> None:
    """The view asks the ledger which running trials are paused, newest attempt first."""
    from sweep.search.view import SamplerView

    study_id = create(storage, make("tpe", NUMBERS))
    paused_trial(storage, study_id, 0)
    again = paused_trial(storage, study_id, 1)
    storage.database.execute(
        "INSERT INTO sweep_attempt (trial_id, number, token, host) VALUES (%s, 2, 'x', 'h')",
        (again,),
    )
    claim(storage, study_id, 2)
    seen = SamplerView(storage).get_all_trials(study_id)
    assert [trial.state.name for trial in seen] == ["PRUNED", "RUNNING", "RUNNING"]


PRUNERS: list[tuple[str, Mapping[str, Any], bool, bool]] = [
    # name, options, verdict on a bad trial, on a good one
    ("none", {}, False, False),
    ("median", {"startup_trials": 3, "min_resource": 2}, True, False),
    ("percentile", {"percentile": 25, "startup_trials": 3, "interval": 1}, True, False),
    ("asha", {"min_resource": 1, "reduction_factor": 2}, True, False),
    ("hyperband", {"min_resource": 1, "max_resource": 3, "reduction_factor": 3}, True, False),
    ("threshold", {"upper": 100.0, "warmup": 1}, True, False),
    ("patient", {"patience": 1, "min_delta": 0.1}, True, False),
]


@pytest.mark.parametrize(("name", "options", "on_bad", "on_good"), PRUNERS)
def test_every_pruner(
    storage: PostgresStorage, name: str, options: Any, on_bad: bool, on_good: bool
) -> None:
    """A trial that grows ever worse is stopped, one that is best of all is not."""
    study = make("random", NUMBERS, trials=12, pruner=Choice(name, options))
    study_id = create(storage, study)

    def report(number: int, curve: Callable[[int], float]) -> list[bool]:
        trial_id = claim(storage, study_id, number)
        verdicts = []
        for step in range(1, 5):
            storage.set_trial_intermediate_value(trial_id, step, curve(step))
            verdicts.append(pruning.should_prune(study, storage, study_id, trial_id))
        storage.set_trial_state_values(trial_id, COMPLETE, [curve(4)])
        return verdicts

    for number in range(10):
        report(number, lambda step, number=number: 10.0 + number / step)  # type: ignore[misc]
    assert any(report(10, lambda step: 1000.0 * step)) is on_bad
    assert any(report(11, lambda step: 1.0 / step)) is on_good


@pytest.mark.parametrize("name", ["asha", "hyperband"])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(
    ("at", "peak", "is_stopped"),
    [
        ("best", 3.0, False),  # the best of all, before it got worse
        ("best", 2.0, True),  # only as good as another
        ("best", 1.9, True),
        ("last", 3.0, True),  # its result is what it has now
    ],
)
def test_rungs_do_not_stop_the_leader(
    storage: PostgresStorage, name: str, direction: str, at: str, peak: float, is_stopped: bool
) -> None:
    """With ``at: best`` the trial that has the best result goes on, however it does by now."""
    sign = 1.0 if direction == "maximize" else -1.0
    options = {"min_resource": 2, "reduction_factor": 2}
    options |= {"max_resource": 8} if name == "hyperband" else {}
    study = make(
        "random",
        NUMBERS,
        trials=12,
        pruner=Choice(name, options),
        objectives=(Objective("m", direction, at=at),),
    )
    study_id = create(storage, study)

    def report(number: int, *curve: float) -> bool:
        trial_id = claim(storage, study_id, number)
        for step, value in enumerate(curve, 1):
            storage.set_trial_intermediate_value(trial_id, step, sign * value)
        # A hyperband puts each trial into a bracket, by its number: all steps are asked.
        verdict = pruning.should_prune(study, storage, study_id, trial_id)
        state = TrialState.PRUNED if verdict else COMPLETE
        storage.set_trial_state_values(trial_id, state, [sign * max(curve)])
        return verdict

    for number in range(11):
        report(number, 0.5, 1.0 + number / 10, *([1.0 + number / 10] * 6))
    assert report(11, peak, *([-5.0] * 7)) is is_stopped


def test_verdict_without_reports(storage: PostgresStorage) -> None:
    """A trial that has reported nothing goes on."""
    study = make("random", NUMBERS, pruner=Choice("median"))
    study_id = create(storage, study)
    trial_id = claim(storage, study_id, 0)
    assert pruning.should_prune(study, storage, study_id, trial_id) is False


REFUSED = [
    (make("cmaes", MIXED), InputError, "optimizer, nesterov is categorical"),
    (
        make("cmaes", NUMBERS, objectives=(Objective("a"), Objective("b"))),
        InputError,
        "one objective",
    ),
    (make("magic", NUMBERS), InputError, "no sampler 'magic'"),
]


@pytest.mark.parametrize(("study", "kind", "words"), REFUSED)
def test_samplers_that_cannot_work(study: Study, kind: type, words: str) -> None:
    """A sampler that cannot search the space says why and what to use."""
    with pytest.raises(kind, match=words):
        propose.build_sampler(study, 0)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch or cmaes the message says what to install."""
    from sweep.search import samplers

    monkeypatch.setattr(samplers, "find_spec", lambda module: None)
    for sampler, package in (("gp", "torch"), ("cmaes", "cmaes")):
        with pytest.raises(SweepError, match=f"needs the package {package}") as caught:
            propose.build_sampler(make(sampler, NUMBERS), 0)
        assert f"pip install {package}" in caught.value.hint.lower()


def test_pruners_that_cannot_work() -> None:
    """Options that contradict each other are the user's to mend."""
    for choice in (Choice("magic"), Choice("threshold"), Choice("percentile")):
        with pytest.raises(InputError):
            samplers.build_pruner(make("tpe", NUMBERS, pruner=choice))


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsgaii"])
def test_values_on_a_step_are_as_they_are_written(storage: PostgresStorage, sampler: str) -> None:
    """Stored and given to training: 0.3, not 0.30000000000000004, so that equal ones are equal."""
    space = Space(
        tuple(Parameter(name, "float", low=0.0, high=1.0, step=0.1) for name in ("a", "b"))
    )
    options = {"startup_trials": 1} if sampler == "cmaes" else {}
    study = dataclasses.replace(make(sampler, space), sampler=Choice(sampler, options))
    study_id = create(storage, study)
    written = space.get("a").values()
    for number in range(30):
        trial_id = claim(storage, study_id, number)
        values = propose.propose(study, storage, study_id, trial_id, number)
        assert all(value in written for value in values.values()), values
        assert storage.get_trial(trial_id).params == values
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [abs(values["a"] - 0.3)])
