"""Trials of several trainings: their ends on a real database, and who gets a further one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sweep.control import replicating
from sweep.control.settle import settle
from sweep.core.attributes import REPLICATES
from sweep.core.space import Parameter, Space
from sweep.core.study import Constraint, Objective, Replicates, Study
from sweep.core.trial import Claim, End, Place, Replicate, Report, replicate_seed, trial_seed
from sweep.storage import cancelling, records, replicates, retries, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.storage.ledgers import counts, do, make
from tests.study_rows import make_study

SPACE = Space((Parameter("x", "float", low=0.0, high=1.0),))


def study_of(least: int, most: int, **changes: object) -> Study:
    found = make_study(SPACE, replicates=Replicates(least, most), max_parallel=1, trials=3)
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    found = Database(database_url)
    yield found
    found.close()


def train(
    ledger: Ledger,
    value: float,
    steps: int = 2,
    *,
    first: int = 0,
    end: End | None = None,
    **more: float,
) -> tuple[Claim, str]:
    """Claim a trial, report its objective, and let its training end; return the trial's state."""
    token = f"t{ledger.count_attempts()}"
    claim = do(ledger, lambda: ledger.claim(token, Place("job", 0, "node", "boot")))
    metrics = {"acc": value, **more}
    reports = [Report(step, 1.0 + step, metrics) for step in range(first, first + steps)]
    do(ledger, lambda: ledger.record(token, reports))
    made = end or End("finished")
    return claim, do(ledger, lambda: settle(ledger, token, claim.trial_id, made, None))


def record_of(ledger: Ledger, number: int) -> records.TrialRecord:
    found = records.read_trials(ledger.db, ledger.study_id, ledger.study, metrics=True)
    return found[number]


def test_a_trial_is_the_mean_of_its_trainings(db: Database) -> None:
    """It stays open until the last, is taken up before another begins, and keeps the last curve."""
    ledger = make(db, study_of(3, 3))
    values, claims = (0.5, 0.7, 0.9), []
    for number, value in enumerate(values, 1):
        claim, state = train(ledger, value, steps=4 - number)
        claims.append(claim)
        assert (claim.number, claim.replicate, claim.first) == (0, number, number)
        assert state == ("complete" if number == 3 else "running")
    assert ledger.is_proven()
    found = record_of(ledger, 0)
    assert found.values == (pytest.approx(0.7),) and found.state == "complete"
    assert [one.values for one in found.replicates] == [(0.5,), (0.7,), (0.9,)]
    assert [one.attempt for one in found.replicates] == [1, 2, 3]
    seeds = [replicate_seed(ledger.study.seed, 0, k) for k in (1, 2, 3)]
    assert [one.seed for one in found.replicates] == seeds and found.seed == seeds[2]
    assert found.metrics == {"acc": [(0, 0.9)]}
    shown = db.execute(
        "SELECT step, intermediate_value FROM trial_intermediate_values WHERE trial_id = %s "
        "ORDER BY step",
        (found.trial_id,),
    )
    assert shown == [(0, 0.5), (1, 0.5), (2, 0.5)]  # pruners compare the first ones
    assert counts(ledger) == {"complete": 1, "waiting": 2}
    assert train(ledger, 0.1)[0].number == 1


def test_seeds_are_paired() -> None:
    """The first is the trial's own; further ones are the same in all trials, and unlike."""
    assert replicate_seed(7, 3, 1) == trial_seed(7, 3)
    assert replicate_seed(7, 3, 2) == replicate_seed(7, 4, 2)
    assert len({replicate_seed(7, 3, k) for k in range(1, 50)}) == 49


def test_an_interrupted_replicate_goes_on_as_itself(db: Database) -> None:
    """Interruptions count for their own replicate; what came before it is no checkpoint of it."""
    ledger = make(db, study_of(2, 2))
    train(ledger, 0.5)
    claim, state = train(ledger, 0.6, end=End("interrupted"))
    assert (claim.replicate, claim.attempt, claim.first, state) == (2, 2, 2, "running")
    claim, state = train(ledger, 0.7)
    assert (claim.replicate, claim.attempt, claim.first, state) == (2, 3, 2, "complete")
    assert record_of(ledger, 0).values == (pytest.approx(0.6),)


def test_until_when_an_interrupted_attempt_counts_is_kept(db: Database) -> None:
    """Its successor goes on from step 2, so what came after step 1 is done again; the curve is gone
    once the next replicate has begun."""
    ledger = make(db, study_of(2, 2))
    train(ledger, 0.5, steps=4, end=End("interrupted"))
    train(ledger, 0.6, first=2)
    train(ledger, 0.7)
    found = record_of(ledger, 0)
    assert [one.kept for one in found.replicates] == [((1, 2.0),), ()]
    assert found.metrics == {"acc": [(0, 0.7), (1, 0.7)]}


@pytest.mark.parametrize("outcome", ["error", "finished"])
def test_a_replicate_that_fails_fails_its_trial(db: Database, outcome: str) -> None:
    """By an error of its own, or diverged: a mean without it would be better than it is."""
    ledger = make(db, study_of(2, 2))
    train(ledger, 0.5)
    value = float("nan") if outcome == "finished" else 0.9
    claim, state = train(ledger, value, end=End(outcome, "why", 1))
    assert (claim.replicate, state) == (2, "failed")
    assert record_of(ledger, 0).values == ()
    assert train(ledger, 0.4)[0].number == 1


def test_constraints_are_of_the_means(db: Database) -> None:
    limits = (Constraint("ms", max=10.0),)
    ledger = make(db, study_of(2, 2, constraints=limits))
    train(ledger, 0.5, ms=14.0)
    train(ledger, 0.5, ms=8.0)
    assert record_of(ledger, 0).violation == pytest.approx(1.0)
    train(ledger, 0.4, ms=12.0)
    train(ledger, 0.4, ms=8.0)
    assert record_of(ledger, 1).is_feasible
    assert ledger.best_numbers(1) == [1]


def test_several_objectives_have_a_mean_each(db: Database) -> None:
    both = (Objective("acc", "maximize"), Objective("loss"))
    ledger = make(db, study_of(2, 2, objectives=both))
    train(ledger, 0.5, loss=2.0)
    assert train(ledger, 0.7, loss=1.0)[1] == "complete"
    assert record_of(ledger, 0).values == (pytest.approx(0.6), pytest.approx(1.5))


def test_races(db: Database) -> None:
    """Of three trials the hopeless one gets the least, and what may be the best gets the most."""
    ledger = make(db, study_of(2, 4))
    for value in (0.80, 0.82, 0.81, 0.79):
        train(ledger, value)
    assert record_of(ledger, 0).state == "complete"  # nothing to be compared with: all four
    train(ledger, 0.30)
    assert train(ledger, 0.31)[1] == "complete"
    assert len(record_of(ledger, 1).replicates) == 2
    for value in (0.80, 0.81, 0.80, 0.81):
        train(ledger, value)
    assert len(record_of(ledger, 2).replicates) == 4
    assert counts(ledger) == {"complete": 3}


CASES = [
    # own values, the others', whether it may be the best (more is better)
    ([0.5, 0.5], [], True),
    ([0.5, 0.6], [[0.4, 0.5]], True),  # better by its mean
    ([0.1, 0.12], [[0.9, 0.92]], False),
    ([0.1, 0.12], [[0.12, 0.9]], True),  # they differ by less than the noise
    ([0.1], [[0.9]], True),  # of the noise nothing is known
    ([0.5, 0.5], [[0.5, 0.5]], True),  # as good
    ([0.5, 0.5], [[0.6, 0.6]], False),  # no noise at all
]


@pytest.mark.parametrize(("own", "others", "expected"), CASES)
def test_who_may_be_the_best(own: list[float], others: list[list[float]], expected: bool) -> None:
    def trial(values: list[float]) -> list[Replicate]:
        return [Replicate(k, k, k, (value,)) for k, value in enumerate(values, 1)]

    found = replicating.may_be_best(study_of(1, 5), trial(own), [trial(o) for o in others])
    assert found == expected


def test_the_pooled_deviation_is_that_of_the_residuals() -> None:
    """1 and 3, 2 and 4 and 6: (2 + 8) / (1 + 2) is its square; a trial of one tells nothing."""
    trials = [[1.0, 3.0], [2.0, 4.0, 6.0], [9.0]]
    assert replicating.pooled_deviation(trials) == pytest.approx((10 / 3) ** 0.5)
    assert replicating.pooled_deviation(trials[2:]) is None
    assert replicating.pooled_deviation([[1.0, float("inf")], [2.0, float("nan")]]) is None


@pytest.mark.parametrize(
    ("bounded", "expected"),
    [
        ([9.0, 9.4], True),
        ([10.1, 10.3], True),  # above 10 by less than the noise
        ([12.0, 12.4], False),
        ([float("inf"), 12.4], True),  # of what is not finite nothing is known
    ],
)
def test_what_breaks_a_bound_is_never_the_best(bounded: list[float], expected: bool) -> None:
    """However good its objective: it gets no further training, unless chance explains it."""
    study = study_of(1, 5, constraints=(Constraint("ms", max=10.0),))
    own = [Replicate(k, k, k, (0.9,), (ms,)) for k, ms in enumerate(bounded, 1)]
    others = [] if not expected else [[Replicate(1, 1, 1, (0.1,), (1.0,))]]
    assert replicating.may_be_best(study, own, others) == expected


def test_a_cancelled_trial_gets_no_further_training(db: Database) -> None:
    ledger = make(db, study_of(2, 2))
    token = "t"
    claim = do(ledger, lambda: ledger.claim(token, Place("job", 0, "node", "boot")))
    do(ledger, lambda: ledger.record(token, [Report(0, 1.0, {"acc": 0.5})]))
    do(ledger, lambda: cancelling.cancel(ledger, claim.trial_id))
    state = do(ledger, lambda: settle(ledger, token, claim.trial_id, End("finished"), None))
    assert state == "cancelled" and counts(ledger) == {"cancelled": 1, "waiting": 2}


@pytest.mark.parametrize(("least", "state"), [(1, "complete"), (2, "cancelled")])
def test_a_study_that_ends_meanwhile(db: Database, least: int, state: str) -> None:
    """With enough trainings the trial has a result; with fewer it is never the best."""
    ledger = make(db, study_of(least, 3))
    token = "t"
    claim = do(ledger, lambda: ledger.claim(token, Place("job", 0, "node", "boot")))
    do(ledger, lambda: ledger.record(token, [Report(0, 1.0, {"acc": 0.5})]))
    ended = studies.StudyState(studies.ENDED, "its time is over")
    do(ledger, lambda: studies.write_state(db, ledger.study_id, ended))
    assert do(ledger, lambda: settle(ledger, token, claim.trial_id, End("finished"), None)) == state


def test_a_retry_begins_with_the_first(db: Database) -> None:
    """From nothing: what the replicates gave is taken back, and their count begins anew."""
    ledger = make(db, study_of(2, 2))
    train(ledger, 0.5)
    train(ledger, 0.7)
    do(ledger, lambda: retries.give_back(ledger, [record_of(ledger, 0)]))
    assert record_of(ledger, 0).replicates == ()
    claim, state = train(ledger, 0.1)
    assert (claim.number, claim.attempt, claim.replicate, state) == (0, 3, 1, "running")
    assert train(ledger, 0.3)[1] == "complete"
    assert record_of(ledger, 0).values == (pytest.approx(0.2),)


def test_what_a_notebook_puts_there_is_no_replicate() -> None:
    assert replicates.parse('[{"values": ["x"]}]') == ()
    assert replicates.parse('[{"values": [1], "number": "x"}]') == ()
    assert replicates.parse("7") == replicates.parse('["a", {"b": 1}]') == ()
    assert replicates.parse(json.dumps([{"values": "x"}]))[0].values == ()
    assert REPLICATES.startswith("sweep:")
