"""A trial that is given back: what was learnt from it goes; number, values and attempts stay."""

from __future__ import annotations

import pytest

from sweep.control.settle import give_up, settle
from sweep.core import outcomes
from sweep.core.attributes import CONSTRAINTS, LEAVE, PROMOTED, RUNG
from sweep.core.study import Retry
from sweep.core.trial import End, Place, Report, TrialRecord, since_nothing, since_retry
from sweep.search.view import SamplerView
from sweep.storage import adoption, records, retries, trial_rows
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.optuna_storage import PostgresStorage
from tests.storage.ledgers import counts, do, make
from tests.study_rows import make_study

HERE = Place(job="7", index=0, host="n1", slot=None, boot_id=None)
OOM = End(outcomes.OUT_OF_MEMORY, "memory ran out")


@pytest.fixture
def ledger(database_url: str) -> Ledger:
    study = make_study(trials=4, sampler=make_study().sampler)
    return make(Database(database_url), study)


def run(ledger: Ledger, token: str, end: End, *values: float) -> int:
    """Run one attempt at the next trial: it reports values from step 0 on, and ends so."""
    claim = ledger.claim(token, HERE)
    assert claim is not None
    for step, value in enumerate(values):
        ledger.record(token, [Report(step, 1.0, {"acc": value, "loss": 1.0})])
    do(ledger, lambda: settle(ledger, token, claim.trial_id, end, None))
    return claim.trial_id


def read(ledger: Ledger, number: int = 0) -> TrialRecord:
    found = records.read_trials(
        ledger.db, ledger.study_id, ledger.study, metrics=True, numbers=[number]
    )
    return found[0]


def give_back(ledger: Ledger, *numbers: int, resume: bool = False) -> list[int]:
    found = [read(ledger, number) for number in numbers]
    return do(ledger, lambda: retries.give_back(ledger, found, numbers if resume else ()))  # type: ignore[no-any-return]


def fail_by_memory(ledger: Ledger) -> int:
    """Let trial 1 be complete, and trial 0 fail as one that has asked for too much memory."""
    trial_id = run(ledger, "a", OOM, 0.5, 0.6)
    assert run(ledger, "b", OOM, 0.7) == trial_id
    run(ledger, "c", End(outcomes.FINISHED), 0.9)
    assert counts(ledger) == {"waiting": 2, "complete": 1, "failed": 1}
    return trial_id


def test_what_was_learnt_is_taken_back(ledger: Ledger) -> None:
    """Of the sampler's view, Optuna's tables and ours; its number and its values stay."""
    trial_id = fail_by_memory(ledger)
    for key, value in ((CONSTRAINTS, [1.0]), (RUNG + "0", 0.6), (PROMOTED, 0), (LEAVE, {})):
        trial_rows.write_attribute(ledger.db, "system", [trial_id], key, value)

    def seen() -> dict[int, tuple[str, object]]:
        view = SamplerView(PostgresStorage(ledger.db), failures=True)
        trials = view.get_all_trials(ledger.study_id, deepcopy=False)
        return {t.number: (t.state.name, t.system_attrs.get(CONSTRAINTS)) for t in trials}

    assert seen()[0] == ("COMPLETE", [1.0])  # worst and infeasible
    before = read(ledger)
    assert give_back(ledger, 0) == [0]
    assert seen() == {0: ("RUNNING", None), 1: ("COMPLETE", None)}
    trial = PostgresStorage(ledger.db).get_trial(trial_id)
    assert (trial.number, trial.values, trial.intermediate_values) == (0, None, {})
    assert [*trial.system_attrs] == []
    assert [*trial.user_attrs] == ["sweep:retried"]
    after = read(ledger)
    assert (after.state, after.params, after.metrics) == ("waiting", before.params, {})
    assert [a.outcome for a in after.attempts] == [outcomes.OUT_OF_MEMORY, outcomes.RETRIED]
    assert [(r.attempt, r.state, r.resuming) for r in after.retries] == [(2, "failed", False)]
    assert "memory ran out" in after.retries[0].reason
    assert counts(ledger) == {"waiting": 3, "complete": 1}
    assert ledger.unfinished() == 3


def test_it_is_claimed_as_its_next_attempt(ledger: Ledger) -> None:
    """Its attempts go on in number, and count anew: tries, used time, steps back."""
    trial_id = fail_by_memory(ledger)
    give_back(ledger, 0)
    claim = ledger.claim("d", HERE)
    assert claim is not None
    assert (claim.trial_id, claim.number, claim.attempt, claim.first) == (trial_id, 0, 3, 3)
    assert claim.used_s == 0.0
    assert ledger.study.space.from_optuna(claim.params) == read(ledger).params
    do(ledger, lambda: settle(ledger, "d", trial_id, OOM, None))
    attempts = ledger.attempts(trial_id)
    assert [a.number for a in since_retry(attempts)] == [3]
    assert give_up(attempts, Retry(max_attempts=3)) is None
    assert read(ledger).state == "waiting"  # once more, as any that has run out of memory once
    run(ledger, "e", End(outcomes.FINISHED), 0.8)
    assert (read(ledger).state, read(ledger).values) == ("complete", (0.8,))
    assert [a.number for a in read(ledger).attempts] == [1, 2, 3, 4]


def test_one_that_goes_on_keeps_what_it_reported(ledger: Ledger) -> None:
    """With its checkpoint the steps before it count; its tries begin anew all the same."""
    trial_id = fail_by_memory(ledger)
    give_back(ledger, 0, resume=True)
    assert read(ledger).metrics["acc"] == [(0, 0.7), (1, 0.6)][:1]
    trial = PostgresStorage(ledger.db).get_trial(trial_id)
    assert trial.intermediate_values == {0: 0.7}
    attempts = ledger.attempts(trial_id)
    assert [a.outcome for a in attempts] == ["out of memory", outcomes.RETRIED_RESUMING]
    assert len(since_nothing(attempts)) == 2
    assert since_retry(attempts) == []
    claim = ledger.claim("d", HERE)
    assert claim is not None and claim.first == 3


def test_a_repeat_changes_nothing(ledger: Ledger) -> None:
    """Whoever has lost the answer is told the same; who comes later finds it waiting."""
    fail_by_memory(ledger)
    before = [read(ledger)]

    def work() -> list[int]:
        return retries.give_back(ledger, before)

    assert do(ledger, work) == [0]
    assert do(ledger, work) == [0]
    assert len(read(ledger).retries) == 1
    assert give_back(ledger, 0) == []  # it is read as waiting now
    assert len(read(ledger).attempts) == 2


def test_one_that_runs_is_left_alone(ledger: Ledger) -> None:
    """Also where it was read as failed, and has been given back and claimed since."""
    fail_by_memory(ledger)
    old = read(ledger)
    give_back(ledger, 0)
    claim = ledger.claim("d", HERE)
    assert claim is not None
    do(ledger, lambda: retries.give_back(ledger, [old]))
    assert read(ledger).state == "running"
    ledger.touch("d")  # its writes are still taken


def test_one_that_never_began_waits(ledger: Ledger) -> None:
    """A trial that was cancelled in the queue has no attempt, and gets its first one."""
    trial_id = read(ledger, 2).trial_id
    ledger.close_trial(trial_id, End(outcomes.STOPPED), outcomes.CANCELLED)
    assert read(ledger, 2).state == "cancelled"
    assert give_back(ledger, 2) == [2]
    assert PostgresStorage(ledger.db).get_trial(trial_id).state.name == "WAITING"
    assert read(ledger, 2).retries[0].attempt == 0


def test_a_result_is_noted_before_it_goes(ledger: Ledger) -> None:
    """What a complete trial had come to is still known."""
    run(ledger, "a", End(outcomes.FINISHED), 0.5)
    assert give_back(ledger, 0) == [0]
    found = read(ledger)
    assert (found.values, found.retries[0].values) == ((), (0.5,))
    assert ledger.best_numbers(1) == []


def test_who_follows_the_history_sees_the_new_face(ledger: Ledger) -> None:
    """Also where the trial has failed, run again and ended between two looks."""
    trial_id = fail_by_memory(ledger)
    storage = PostgresStorage(ledger.db)
    assert storage.get_all_trials(ledger.study_id)[0].state.name == "FAIL"
    follower = storage.follow(ledger.study_id)
    generation = follower.generation
    give_back(ledger, 0)
    run(ledger, "d", End(outcomes.FINISHED), 0.3)
    trials = storage.get_all_trials(ledger.study_id)
    assert [t.state.name for t in trials[:2]] == ["COMPLETE", "COMPLETE"]
    assert trials[0].values == [0.3]
    assert storage.get_trial(trial_id).values == [0.3]
    assert follower.generation == generation + 1


def test_its_owner_does_not_see_the_old_face(ledger: Ledger) -> None:
    """A task that knows the trial as failed claims it: its sampler is to find it running."""
    trial_id = fail_by_memory(ledger)
    storage = PostgresStorage(ledger.db)
    storage.get_all_trials(ledger.study_id)
    give_back(ledger, 0)
    ledger.claim("d", HERE)
    storage.token, storage.own = "d", trial_id
    assert storage.get_trial(trial_id).state.name == "RUNNING"


def test_what_it_reported_before_is_not_taken_over(ledger: Ledger) -> None:
    """The journals of attempts before a retry are history: no later attempt adopts them."""
    fail_by_memory(ledger)
    give_back(ledger, 0)
    claim = ledger.claim("d", HERE)
    assert claim is not None
    ledger.record("d", [Report(5, 1.0, {"acc": 0.1})])
    assert do(ledger, lambda: adoption.missing_before(ledger, "d")) == {}
    assert read(ledger).metrics == {"acc": [(5, 0.1)]}


def test_what_a_notebook_wrote_is_no_retry() -> None:
    """Anything may stand under the key."""
    assert records.read_retries('{"a": 1}') == ()
    assert records.read_retries('[1, {"b": 2}]') == ()
    assert records.read_retries('[{"state": "failed"}]')[0].state == "failed"
