"""Constraints, duplicates, proposals at the same moment, and learning from an earlier study."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweep.control import settle
from sweep.core.attributes import PARALLEL
from sweep.core.errors import InputError
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Constraint, Objective, Study
from sweep.core.trial import End, Place, Report
from sweep.search import duplicates, warm_start
from sweep.search import propose as sampling
from sweep.search.propose import first_rows
from sweep.storage import bulk, records, studies
from sweep.storage.budgets import Reached
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.optuna_storage import PostgresStorage
from sweep.studyfile import loads
from tests.storage.ledgers import do
from tests.toys import write_toy

PLACE = Place("job", 0, "node1", "boot")
LR = Parameter("lr", "float", low=0.0, high=1.0)
KIND = Parameter("kind", "categorical", choices=("a", "b"))
STUDY = Study(
    name="s",
    command=("python", "train.py"),
    objectives=(Objective("acc", "maximize"),),
    space=Space((LR, KIND)),
    trials=20,
    sampler=Choice("tpe", {"startup_trials": 0}),
    max_parallel=1,
)
SMALL = Space((KIND, Parameter("n", "int", low=1, high=3)))  # six configurations


def make(db: Database, study: Study) -> Ledger:
    with db.transaction():
        found = warm_start.read(db, study)
        study_id = studies.insert_study(db, study)
        studies.remove_attribute(db, study_id, PARALLEL)  # one process claims for several tasks
        bulk.insert_waiting_trials(db, study_id, first_rows(study, study.trials))
        if found is not None:
            warm_start.write(db, study_id, found)
    return Ledger(db, study_id, study)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def pull(ledger: Ledger, token: str) -> Any:
    """Claim a trial, with its parameters."""
    claim = do(ledger, lambda: ledger.claim(token, PLACE))
    params = dict(claim.params)
    if not claim.sampled:
        storage = PostgresStorage(ledger.db, token=token)
        params = sampling.propose(
            ledger.study, storage, ledger.study_id, claim.trial_id, claim.number
        )
    return replace(claim, params=params)


def finish(ledger: Ledger, claim: Any, **metrics: float) -> str:
    do(ledger, lambda: ledger.record(claim.token, [Report(1, 1.0, metrics)]))
    return str(
        do(
            ledger,
            lambda: settle.settle(ledger, claim.token, claim.trial_id, End("finished"), None),
        )
    )


def test_constraints_of_a_finished_trial(db: Database) -> None:
    """Written where Optuna looks; the best is a feasible one; without the metric it has failed."""
    ledger = make(db, replace(STUDY, constraints=(Constraint("ms", max=50),)))
    assert finish(ledger, pull(ledger, "a"), acc=0.9, ms=70) == "complete"
    assert finish(ledger, pull(ledger, "b"), acc=0.5, ms=50) == "complete"
    assert finish(ledger, pull(ledger, "c"), acc=0.8) == "failed"
    study = optuna.load_study(study_name="s", storage=PostgresStorage(db))
    assert [list(t.constraints.values()) for t in study.trials[:2]] == [[20.0], [0.0]]
    assert study.best_trial.number == 1
    assert ledger.best_numbers(5) == [1]
    assert ledger.best_numbers(5, infeasible=True) == [1, 0]
    found = records.read_trials(db, ledger.study_id, ledger.study)
    assert [r.violation for r in found[:3]] == [20.0, 0.0, None]
    assert "never reported ms" in found[2].reason and "a constraint" in found[2].reason


@pytest.mark.parametrize(
    "sampler", ["tpe", "nsgaii", "cmaes", pytest.param("gp", marks=pytest.mark.long)]
)
def test_samplers_keep_away_from_what_breaks_a_bound(db: Database, sampler: str) -> None:
    """Accuracy grows with lr, but above 0.5 the bound is broken."""
    if sampler == "gp":
        pytest.importorskip("torch")
    options = {
        "nsgaii": {"population": 10},
        "cmaes": {"population": 5},  # which needs two numbers at least
    }.get(sampler, {"startup_trials": 8})
    other = Parameter("other", "float", low=0.0, high=1.0)
    study = replace(
        STUDY,
        space=Space((LR, other)) if sampler == "cmaes" else Space((LR,)),
        sampler=Choice(sampler, options),
        trials=60 if sampler == "cmaes" else 30,  # twelve generations
        constraints=(Constraint("lr", max=0.5),),
    )
    ledger, tried = make(db, study), []
    for number in range(study.trials):
        claim = pull(ledger, f"t{number}")
        tried.append(claim.params["lr"])
        finish(ledger, claim, acc=tried[-1], lr=tried[-1])
    best = [tried[number] for number in ledger.best_numbers(1)]
    assert 0.3 < best[0] <= 0.5
    late = tried[study.trials - 10 :]
    assert sum(lr <= 0.6 for lr in late) > len(late) / 2, late


def test_proposals_of_the_same_moment_differ(db: Database, database_url: str) -> None:
    """Six workers propose at once in a space of six: each gets another configuration."""
    ledger = make(db, replace(STUDY, space=SMALL, trials=7))
    finish(ledger, pull(ledger, "first"), acc=1.0)

    def propose(number: int) -> tuple[Any, ...]:
        mine = Ledger(Database(database_url), ledger.study_id, ledger.study)
        claim = pull(mine, f"t{number}")
        mine.db.close()
        return (claim.params["kind"], claim.params["n"])

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(propose, range(5)))
    assert len(set(found)) >= 4, found  # the fifth may have met chance alone
    assert len({kind for kind, _ in found}) == 2


def test_duplicates_are_drawn_again(db: Database) -> None:
    """With resample six trials of a space of six are six configurations; a seventh repeats."""
    study = replace(STUDY, space=SMALL, trials=6, duplicates="resample", max_parallel=3)
    for sampler in ("tpe", "random"):
        ledger = make(db, replace(study, name=sampler, sampler=Choice(sampler)))
        seen = []
        for number in range(6):
            claim = pull(ledger, f"{sampler}{number}")
            seen.append((claim.params["kind"], claim.params["n"]))
            finish(ledger, claim, acc=float(claim.params["n"]))
        assert len(set(seen)) >= (6 if sampler == "random" else 5), seen


@pytest.mark.parametrize("word", ["keep", "reuse"])
def test_a_duplicate_is_noticed(db: Database, word: str) -> None:
    """keep runs it and notes the earlier one; reuse takes its result, constraints too."""
    points = ({"kind": "a", "n": 2}, {"kind": "a", "n": 2}, {"kind": "b", "n": 2})
    ledger = make(
        db,
        replace(
            STUDY,
            space=SMALL,
            trials=3,
            points=points,
            duplicates=word,
            constraints=(Constraint("ms", max=1),),
        ),
    )
    first = pull(ledger, "a")
    assert not do(ledger, lambda: duplicates.notice(ledger, first))
    finish(ledger, first, acc=0.7, ms=3)
    second = pull(ledger, "b")
    assert do(ledger, lambda: duplicates.notice(ledger, second)) == (word == "reuse")
    third = pull(ledger, "c")
    assert not do(ledger, lambda: duplicates.notice(ledger, third))
    study = optuna.load_study(study_name="s", storage=PostgresStorage(db))
    trial = study.trials[1]
    assert trial.user_attrs["sweep:duplicate_of"] == 0
    if word == "reuse":
        assert (trial.state.name, trial.values) == ("COMPLETE", [0.7])
        assert list(trial.constraints.values()) == [2.0]
        assert ledger.attempts(second.trial_id)[-1].reason == (
            "the same configuration as trial 0, whose result it has"
        )
        assert do(ledger, lambda: ledger.trained_for(second.trial_id)) == (0, first.trial_id)
        assert do(ledger, lambda: ledger.trained_for(first.trial_id)) is None
        best = [ledger.best_numbers(5, infeasible=True, reused=all_) for all_ in (True, False)]
        assert best == [[0, 1], [0]]
    else:
        assert trial.state.name == "RUNNING"
        finish(ledger, second, acc=0.8, ms=0)
        assert do(ledger, lambda: ledger.trained_for(second.trial_id)) is None
        assert do(ledger, lambda: ledger.best_numbers(5, infeasible=True, reused=False)) == [1, 0]


def earlier(db: Database) -> Ledger:
    """Return a study of 20 trials, best at lr 0.9; lr was drawn from 0 to 1, depth was fixed."""
    study = replace(STUDY, name="old", sampler=Choice("random"), fixed={"depth": 2})
    ledger = make(db, study)
    for number in range(20):
        claim = pull(ledger, f"old{number}")
        finish(ledger, claim, acc=1 - (claim.params["lr"] - 0.9) ** 2)
    return ledger


def test_warm_start_learns_from_an_earlier_study(db: Database) -> None:
    """The very first proposals are near the earlier optimum; N and the ranking know nothing."""
    earlier(db)
    ledger = make(db, replace(STUDY, trials=8, warm_start="old", max_parallel=4))
    tried = []
    for number in range(8):
        claim = pull(ledger, f"n{number}")
        tried.append(claim.params["lr"])
        finish(ledger, claim, acc=0.5)
    assert sum(abs(lr - 0.9) < 0.25 for lr in tried[:4]) >= 3, tried
    assert len(records.read_trials(db, ledger.study_id, ledger.study)) == 8


def test_warm_start_with_another_space(db: Database) -> None:
    """Out of range and lacking ones are left out; what was fixed there has its value."""
    old = earlier(db)
    values = [r.params["lr"] for r in records.read_trials(db, old.study_id, old.study)]
    space = Space(
        (Parameter("lr", "float", low=0.5, high=2.0), Parameter("depth", "int", low=1, high=4))
    )
    found = warm_start.read(db, replace(STUDY, name="new", space=space, warm_start="old"))
    assert found is not None
    kept = [lr for lr in values if lr >= 0.5]
    assert [row["params"] for row in found.trials] == [{"lr": lr, "depth": 2} for lr in kept]
    assert found.left_out == len(values) - len(kept)
    more = Space((LR, Parameter("new", "float", low=0, high=1)))
    found = warm_start.read(db, replace(STUDY, name="new", space=more, warm_start="old"))
    assert found is not None and (len(found.trials), found.left_out) == (0, 20)


def test_warm_start_is_refused(db: Database) -> None:
    """A study that is not there, with the nearest name; and one of another objective."""
    earlier(db)
    with pytest.raises(InputError, match="no study 'odl'") as caught:
        warm_start.read(db, replace(STUDY, warm_start="odl"))
    assert caught.value.hint == "Did you mean old?"
    other = replace(STUDY, warm_start="old", objectives=(Objective("loss", "minimize"),))
    with pytest.raises(InputError, match="another objective"):
        warm_start.read(db, other)


def test_points_of_a_csv_file(tmp_path: Path, sweep: Any, fresh_url: str) -> None:
    """What `sweep collect --format csv` wrote is tried first, best first, beside other columns."""
    env = {"SWEEP_STORAGE": fresh_url}
    write_toy(tmp_path, trials=3, parallel=2)
    assert sweep("launch", "study.yaml", "--wait", env=env).code == 0
    assert sweep("collect", "--format", "csv", "-o", "old.csv", env=env).code == 0
    path = write_toy(tmp_path, name="again", points="old.csv", sampler_="random")
    text = path.read_text().replace("sampler_: random\n", "")
    study = loads(text, str(tmp_path / "study.yaml"))
    assert len(study.points) == 3
    assert all(set(point) == {"x", "kind"} for point in study.points)
    first = sweep("collect", "--top", "1", "--format", "json", env=env).out
    assert f'"x": {study.points[0]["x"]}' in first


TERMINATED = replace(
    STUDY,
    space=Space((LR,)),
    sampler=Choice("random"),
    trials=60,
    terminator=Choice("emmr", {"min_trials": 25, "deterministic": True}),
)


def test_the_terminator_ends_a_study(db: Database) -> None:
    """A flat optimum that is found leaves little to gain; too few trials say nothing."""
    pytest.importorskip("torch")
    from sweep.search import terminator

    ledger = make(db, TERMINATED)
    found: Reached | None = None
    for number in range(60):
        claim = pull(ledger, f"t{number}")
        finish(ledger, claim, acc=1 - 0.1 * (claim.params["lr"] - 0.5) ** 2)
        if number in (10, 40, 59):
            found = terminator.judge(TERMINATED, PostgresStorage(db), ledger.study_id)
            assert found is None or number > 20
            if found:
                break
    assert found is not None and found.by == "terminator" and not found.leave
    assert "terminator (emmr)" in found.reason


@pytest.mark.parametrize(("unit", "expected"), [("epochs", {0: 0.2, 1: 0.3}), ("seconds", {5, 9})])
def test_pruners_see_what_the_study_counts(db: Database, unit: str, expected: Any) -> None:
    """Optuna's intermediate values are keyed by epochs or seconds; our own metrics by step."""
    ledger = make(db, replace(STUDY, pruner=Choice("median", {"resource": unit})))
    claim = pull(ledger, "a")
    began = ledger.live_attempts()[0].claimed.timestamp()
    for step, epoch, after_s, value in ((10, 0, 5.1, 0.1), (20, 0, 5.9, 0.2), (30, 1, 9.5, 0.3)):
        given = Report(step, began + after_s, {"acc": value, "epoch": epoch})
        do(ledger, lambda given=given: ledger.record("a", [given]))
    seen = PostgresStorage(db).get_trial(claim.trial_id).intermediate_values
    assert (seen if unit == "epochs" else set(seen)) == expected
    assert [step for step, _ in ledger.lineage(claim.trial_id, "acc")] == [10, 20, 30]
