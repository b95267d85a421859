"""Proposals that are prepared while others train: what is due, what is taken, what is dropped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from optuna.trial import TrialState

from sweep.core.attributes import PREPARED, PROPOSED, PROPOSER, STAND_BY, WANTED
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Study
from sweep.core.trial import Claim, Place
from sweep.search import preparing, propose
from sweep.search.preparing import Preparer, choose_next
from sweep.storage import PostgresStorage, locks, proposals, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.proposals import Waiting
from tests.search.test_propose import MIXED, NUMBERS, make
from tests.storage import ledgers
from tests.waiting import wait_for

STORED = {"x": (0.1 + 0.2, '{"name": "FloatDistribution"}')}


def waiting(*results: int | None) -> list[Waiting]:
    return [
        Waiting(100 + n, n, None if r is None else STORED, r or 0) for n, r in enumerate(results)
    ]


# Made from so many results each (None: not yet), trials that have ended, at once, which is due.
DUE: list[tuple[Sequence[int | None], int, int, int | None]] = [
    ((), 0, 16, None),
    ((None, None), 5, 16, 0),
    ((5, None, None), 5, 16, 1),
    ((5, 5), 5, 16, None),
    ((5, 5), 6, 16, None),  # one in eight of those that run
    ((5, 5), 7, 16, 0),
    ((7, 5), 7, 16, 1),
    ((5, 5), 6, 4, 0),
    ((5, None), 90, 4, 1),  # one that is missing comes first
    ((9, 9, 9, 9, 0), 9, 4, None),  # not among the next
    ((9,), 3, 4, 0),  # results were taken back
]


@pytest.mark.parametrize(("results", "ended", "parallel", "expected"), DUE)
def test_what_is_due(
    results: Sequence[int | None], ended: int, parallel: int, expected: int | None
) -> None:
    study = make("tpe", NUMBERS, trials=100, max_parallel=parallel)
    found = choose_next(waiting(*results), ended, study)
    assert (found and found.number) == expected


def test_a_slot_that_waits_has_its_proposal_renewed_by_nobody() -> None:
    study = make("gp", NUMBERS, trials=100, max_parallel=4)
    first, second = waiting(0, 0)
    wanted = replace(first, is_wanted=True)
    assert choose_next([wanted, second], 4, study) == second
    assert choose_next([wanted, second], 4, study, renews=False) is None
    assert choose_next([replace(wanted, prepared=None), second], 4, study, renews=False)


@pytest.mark.parametrize(
    ("sampler", "parallel", "expected"),
    [
        *(("tpe", 4, True), ("gp", 16, True), ("auto", 4, True), ("tpe", 3, False)),
        *(("tpe", 30, False), ("random", 8, False), ("cmaes", 8, False), ("nsgaii", 8, False)),
        *(("a.b:C", 8, True), ("optunahub:x", 8, True), ("a.b:C", 3, False)),
    ],
)
def test_which_studies_prepare(sampler: str, parallel: int, expected: bool) -> None:
    """Where few run at once the newest result is worth the wait; of all at once none is left."""
    assert propose.prepares(make(sampler, NUMBERS, max_parallel=parallel)) is expected


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    db = Database(database_url)
    yield db
    db.close()


@pytest.fixture
def ledger(db: Database) -> Ledger:
    """Twelve trials by TPE, four at once: the start of ten is laid out for the first four."""
    study = make("tpe", MIXED, trials=12, max_parallel=4, options={"startup_trials": 2})
    return ledgers.make(db, study)


def preparer(ledger: Ledger) -> Preparer:
    storage = PostgresStorage(ledger.db, steps=False)
    return Preparer(ledger.study, storage, ledger.study_id)


def claim(ledger: Ledger) -> Claim:
    token = os.urandom(8).hex()
    found = ledgers.do(ledger, lambda: ledger.claim(token, Place(None, None, "here")))
    assert found is not None
    return found


def finish(ledger: Ledger, trial_id: int, value: float) -> None:
    storage = PostgresStorage(ledger.db)
    assert storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [value])


def take(ledger: Ledger, token: str, behind: int = 4) -> dict[str, float] | None:
    found = proposals.take(ledger.db, ledger.study_id, token, behind)
    return None if found is None else {name: value for name, value, _ in found}


def noted(ledger: Ledger, trial_id: int) -> dict[str, object]:
    attributes = PostgresStorage(ledger.db).get_trial(trial_id).system_attrs
    found: dict[str, object] = attributes[PROPOSED]
    return found


def fill(ledger: Ledger) -> int:
    """Prepare all that is due; return how many proposals that were."""
    one, count = preparer(ledger), 0
    while one.step()[0]:
        count += 1
    return count


def test_a_queue_is_filled_taken_and_filled_again(ledger: Ledger) -> None:
    """Each of the next trials has valid parameters of its own, and its claim gets just those."""
    begun = [claim(ledger) for _ in range(4)]
    assert all(one.sampled for one in begun)
    assert fill(ledger) == 4
    _, queue = proposals.look(ledger.db, ledger.study_id, 4)
    prepared = [one.prepared for one in queue]
    assert [one.number for one in queue] == [4, 5, 6, 7]
    values = [{n: v for n, (v, _) in one.items()} for one in prepared if one is not None]
    assert len({tuple(one.items()) for one in values}) == 4
    finish(ledger, begun[0].trial_id, 1.0)
    fifth = claim(ledger)
    assert (fifth.number, fifth.sampled) == (4, False)
    assert take(ledger, fifth.token) == values[0]
    stored = PostgresStorage(ledger.db).get_trial(fifth.trial_id).params
    space = ledger.study.space
    active = {p.name for p in space if p.is_active(space.from_optuna(stored))}
    assert active == set(stored)
    note = noted(ledger, fifth.trial_id)
    assert {k: note[k] for k in ("prepared", "behind", "sampler")} == {
        "prepared": True,
        "behind": 1,
        "sampler": "tpe",
    }
    assert take(ledger, fifth.token) is None  # an answer that was lost: all is stored already
    assert PostgresStorage(ledger.db).get_trial(fifth.trial_id).params == stored
    assert fill(ledger) == 4  # one more, and three that are renewed
    waits = proposals.read_waits(ledger.db, ledger.study_id)
    assert (waits.prepared, waits.made) == (1, 0)
    assert waits.longest_s == pytest.approx(note["wait_s"])


def test_what_is_prepared_for_others_runs_to_the_sampler(ledger: Ledger) -> None:
    one = preparer(ledger)
    study, others = ledger.study, {5: {"x": (1.25, _kind(ledger.study, "x"))}}
    view, _ = propose.look(study, one.storage, one.study_id)
    view.expect(others)
    shown = view.get_all_trials(one.study_id, deepcopy=False)
    assert [(t.number, t.state, t.params) for t in shown] == [(5, TrialState.RUNNING, {"x": 1.25})]


def _kind(study: Study, name: str) -> str:
    return study.space.get(name).distribution_json()


@pytest.mark.parametrize(("behind", "is_taken"), [(1, False), (2, True)])
def test_what_is_stale_is_dropped(ledger: Ledger, behind: int, is_taken: bool) -> None:
    """The history may go on by so many results; what lacks more is proposed anew."""
    begun = [claim(ledger) for _ in range(4)]
    fill(ledger)
    for one in begun[:2]:
        finish(ledger, one.trial_id, 1.0)
    mine = claim(ledger)
    assert (take(ledger, mine.token, behind) is not None) is is_taken
    assert _kept(ledger, mine.number) is None


def test_what_another_trial_runs_is_not_taken(ledger: Ledger) -> None:
    begun = [claim(ledger) for _ in range(4)]
    same = PostgresStorage(ledger.db).get_trial(begun[0].trial_id)
    kinds = {p.name: p.distribution_json() for p in ledger.study.space}
    params = {
        n: (same.distributions[n].to_internal_repr(v), kinds[n]) for n, v in same.params.items()
    }
    proposals.store(ledger.db, ledger.study_id, 4, params, 0, "tpe")
    mine = claim(ledger)
    assert take(ledger, mine.token) is None
    assert PostgresStorage(ledger.db).get_trial(mine.trial_id).params == {}


@pytest.mark.parametrize(("resamples", "is_taken"), [(False, True), (True, False)])
def test_what_another_trial_has_finished(ledger: Ledger, resamples: bool, is_taken: bool) -> None:
    """It is drawn again where duplicates are: nobody may have run it when it was prepared."""
    begun = [claim(ledger) for _ in range(4)]
    fill(ledger)
    first = PostgresStorage(ledger.db).get_trial(begun[0].trial_id)
    params = {
        n: (first.distributions[n].to_internal_repr(v), _kind(ledger.study, n))
        for n, v in first.params.items()
    }
    finish(ledger, begun[0].trial_id, 1.0)
    proposals.store(ledger.db, ledger.study_id, 4, params, 1, "tpe")
    token = claim(ledger).token
    found = proposals.take(ledger.db, ledger.study_id, token, 4, resamples=resamples)
    assert (found is not None) is is_taken


def test_nobody_takes_while_another_stores(ledger: Ledger, database_url: str) -> None:
    """Two that ask at the same moment would not see each other's."""
    for _ in range(4):
        claim(ledger)
    fill(ledger)
    mine, other = claim(ledger), Database(database_url)
    with contextlib.closing(other), ThreadPoolExecutor(1) as pool:
        with locks.held(other, locks.PROPOSE, ledger.study_id):
            taking = pool.submit(take, ledger, mine.token)
            wait_for(lambda: _waits_for_a_lock(other), "the other to wait")
        assert taking.result() is not None


def _waits_for_a_lock(db: Database) -> bool:
    return bool(
        db.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = %s "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (locks.PROPOSE,),
        )
    )


def test_nothing_is_taken_under_a_token_that_is_over(ledger: Ledger) -> None:
    for _ in range(4):
        claim(ledger)
    fill(ledger)
    mine = claim(ledger)
    assert take(ledger, "another") is None
    assert _kept(ledger, mine.number) is not None
    assert take(ledger, mine.token) is not None


def test_what_was_not_taken_goes(ledger: Ledger) -> None:
    """A trial that another way has given its parameters leaves nothing behind; one that has none
    yet may still take what was prepared."""
    for _ in range(4):
        claim(ledger)
    fill(ledger)
    mine = claim(ledger)
    proposals.look(ledger.db, ledger.study_id, 4)
    assert _kept(ledger, mine.number) is not None
    study, storage = ledger.study, PostgresStorage(ledger.db)
    storage.token = mine.token
    propose.propose(study, storage, ledger.study_id, mine.trial_id, mine.number)
    proposals.look(ledger.db, ledger.study_id, 4)
    assert _kept(ledger, mine.number) is None
    assert _kept(ledger, mine.number + 1) is not None


def test_a_slot_that_waits_comes_first(ledger: Ledger) -> None:
    """What it gets is valid, and leaves nothing behind; nothing waits for it any more then."""
    for _ in range(5):
        mine = claim(ledger)  # the fifth has no parameters
    assert progress(ledger, mine) == (False, False)
    assert proposals.want(ledger.db, mine.token) and proposals.want(ledger.db, mine.token)
    _, queue = proposals.look(ledger.db, ledger.study_id, 2)
    assert [(one.number, one.is_wanted) for one in queue] == [(4, True), (5, False), (6, False)]
    assert preparer(ledger).step() == (True, False)
    assert progress(ledger, mine) == (True, False)
    found = take(ledger, mine.token)
    stored = PostgresStorage(ledger.db).get_trial(mine.trial_id)
    kinds = stored.distributions
    assert found == {n: kinds[n].to_internal_repr(v) for n, v in stored.params.items()} != {}
    assert studies.read_attribute(ledger.db, ledger.study_id, f"{WANTED}{mine.number}") is None
    assert not proposals.want(ledger.db, mine.token)  # the answer may have been lost


def progress(ledger: Ledger, mine: Claim) -> tuple[bool, bool]:
    return proposals.progress(ledger.db, ledger.study_id, mine.token)


def test_nobody_waits_for_one_that_hangs(ledger: Ledger) -> None:
    """One that begins may be silent for long before its lease ends, a wait is shorter; one whose
    lease has ended is no reason to wait no more: another one is about to take over."""
    for _ in range(5):
        mine = claim(ledger)
    assert proposals.lease(ledger.db, ledger.study_id, "a", begins=True)
    pass_time(ledger.db, proposals.HANGS_S - 4)
    assert progress(ledger, mine) == (False, False)
    pass_time(ledger.db, 8)
    assert progress(ledger, mine) == (False, True)
    pass_time(ledger.db, proposals.BEGIN_S)
    assert progress(ledger, mine) == (False, False)


@pytest.mark.parametrize("starts", [False, True])
def test_nor_for_one_that_hangs_as_it_brings_its_sampler_in(ledger: Ledger, starts: bool) -> None:
    """One that is still to be started has not been silent; where another prepares all is well."""
    db, study_id = ledger.db, ledger.study_id
    for _ in range(5):
        mine = claim(ledger)
    assert proposals.lease(db, study_id, "a", begins=not starts, starts=starts, stands_by=True)
    pass_time(db, proposals.HANGS_S + 1, key=STAND_BY)
    assert progress(ledger, mine) == (False, not starts)
    assert proposals.lease(db, study_id, "b")
    assert progress(ledger, mine) == (False, False)


def test_a_wish_that_its_task_has_fulfilled_is_none(ledger: Ledger) -> None:
    for _ in range(5):
        mine = claim(ledger)
    proposals.want(ledger.db, mine.token)
    proposals.note_made(ledger.db, mine.token, is_first=True)
    assert studies.read_attribute(ledger.db, ledger.study_id, f"{WANTED}{mine.number}") is None


def test_of_an_attempt_that_is_over_nothing_is_wanted(ledger: Ledger) -> None:
    for _ in range(5):
        claim(ledger)
    assert not proposals.want(ledger.db, "another")


def test_how_long_trials_take(ledger: Ledger) -> None:
    """The median, and not of what still runs or has failed."""
    assert proposals.typical_s(ledger.db, ledger.study_id) is None
    for number, seconds in enumerate((2, 4, 60)):
        mine = claim(ledger)
        finish(ledger, mine.trial_id, float(number))
        ledger.db.execute(
            "UPDATE trials SET datetime_complete = datetime_start + %s * interval '1 second' "
            "WHERE trial_id = %s",
            (seconds, mine.trial_id),
        )
    claim(ledger)
    assert proposals.typical_s(ledger.db, ledger.study_id) == pytest.approx(4.0)


def _kept(ledger: Ledger, number: int) -> object:
    return studies.read_attribute(ledger.db, ledger.study_id, f"{PREPARED}{number}")


def test_one_process_prepares(ledger: Ledger) -> None:
    """The lease is one's until it is given back, or nothing waits."""
    db, study_id = ledger.db, ledger.study_id
    assert proposals.lease(db, study_id, "a")
    assert not proposals.lease(db, study_id, "b")
    assert proposals.lease(db, study_id, "a")
    proposals.end_lease(db, study_id, "b")
    assert not proposals.lease(db, study_id, "b")
    proposals.end_lease(db, study_id, "a")
    assert proposals.lease(db, study_id, "b")
    assert proposals.lease(db, study_id, "a", stands_by=True)
    assert not proposals.lease(db, study_id, "c", stands_by=True)
    proposals.end_lease(db, study_id, "a", stands_by=True)
    assert proposals.lease(db, study_id, "b") and proposals.lease(db, study_id, "c", stands_by=True)
    for _ in range(12):
        last = claim(ledger)
    assert not proposals.lease(db, study_id, "b")
    proposals.want(db, last.token)
    assert proposals.lease(db, study_id, "b")


def test_a_lease_that_is_not_renewed_is_anothers(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, study_id = ledger.db, ledger.study_id
    assert proposals.lease(db, study_id, "a")
    pass_time(db, proposals.LEASE_S + 1)
    assert proposals.lease(db, study_id, "b")
    assert not proposals.lease(db, study_id, "a")


def pass_time(
    db: Database, seconds: float, names: Sequence[str] = ("seen", "at"), key: str = PROPOSER
) -> None:
    """Make the lease so much older."""
    for name in names:
        db.execute(
            "UPDATE study_system_attributes SET value_json = jsonb_set(value_json::jsonb, %s, "
            "to_jsonb((value_json::jsonb ->> %s)::float8 - %s))::text WHERE key = %s",
            ([name], name, seconds, key),
        )


@pytest.mark.parametrize("begins", [False, True])
def test_a_process_that_is_gone_is_replaced_soon(
    ledger: Ledger, database_url: str, begins: bool
) -> None:
    """Its session ends with it; while that is there its silence counts for longer."""
    db, study_id, other = ledger.db, ledger.study_id, Database(database_url)
    with contextlib.closing(other):
        assert proposals.lease(other, study_id, "a", begins=begins)
        pass_time(db, -3600, ["seen"])
        pass_time(db, proposals.MISSED_S + 1, ["at"])
        assert not proposals.lease(db, study_id, "b")
    wait_for(lambda: proposals.lease(db, study_id, "b"), "the lease of one that is gone")
    assert not proposals.lease(db, study_id, "a")


def test_one_that_is_still_to_be_started_has_no_session_yet(
    ledger: Ledger, database_url: str
) -> None:
    db, study_id, other = ledger.db, ledger.study_id, Database(database_url)
    with contextlib.closing(other):
        assert proposals.lease(other, study_id, "a", starts=True)
    pass_time(db, -3600, ["seen"])
    pass_time(db, 3600, ["at"])
    assert not proposals.lease(db, study_id, "b")
    pass_time(db, 3600 + proposals.START_S, ["seen"])
    assert proposals.lease(db, study_id, "b")


def test_one_that_begins_has_longer(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its sampler is brought in; what it says later counts as any other's."""
    db, study_id = ledger.db, ledger.study_id
    monkeypatch.setattr(proposals, "BEGIN_S", 3600.0)
    assert proposals.lease(db, study_id, "a", begins=True)
    pass_time(db, proposals.LEASE_S + 1)
    assert not proposals.lease(db, study_id, "b")
    assert proposals.lease(db, study_id, "a")
    pass_time(db, proposals.LEASE_S + 1)
    assert proposals.lease(db, study_id, "b")


def test_waits_are_counted(ledger: Ledger) -> None:
    """The first that a task proposes itself brings in the sampler: it is not among the waits."""
    first, second = claim(ledger), claim(ledger)
    for one in (first, second):
        proposals.note_made(ledger.db, one.token, is_first=one is first)
    waits = proposals.read_waits(ledger.db, ledger.study_id)
    assert (waits.prepared, waits.made) == (0, 2)
    assert waits.longest_s == noted(ledger, second.trial_id)["wait_s"]


def test_it_rests_where_nothing_is_due_and_after_renewing(ledger: Ledger) -> None:
    """Training runs beside: an idle one looks more and more rarely."""
    slept: list[float] = []
    wanted = iter([True] * 10 + [False])
    for _ in range(4):
        claim(ledger)
    preparer(ledger).run(lambda: next(wanted), slept.append)
    assert slept == [0.1, 0.2, 0.4, 0.8, *[preparing.PAUSES_S[1]] * 2]


def test_it_renews_none_while_it_rests(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is missing is made at once all the same."""
    asked, now = [], [0.0]
    found = iter([(True, True), (False, False), (True, False), (False, False), (False, False)])

    def step(renews: bool = True) -> tuple[bool, bool]:
        asked.append((now[0], renews))
        now[0] += 1.0
        return next(found)

    def sleep(seconds: float) -> None:
        now[0] += 1.25

    worker = preparer(ledger)
    monkeypatch.setattr(worker, "step", step)
    wanted = iter([True] * 5 + [False])
    worker.run(lambda: next(wanted), sleep, lambda: now[0])
    # It took 1 s, so that nothing is renewed for three times as long.
    assert asked == [(0.0, True), (1.0, False), (3.25, False), (4.25, True), (6.5, True)]


class Mine:
    """Answers as a user's own sampler would; notes what it was shown."""

    def propose(
        self, study: Study, trials: Any, trial: Any, seed: int, fixed: Any
    ) -> tuple[dict[str, float], dict[str, Any]]:
        shown = sorted(one.number for one in trials)
        return {"x": trial.number / 100}, {"mine": {"shown": shown, "odd": float("inf")}}


def test_a_users_own_sampler_is_asked_ahead(db: Database) -> None:
    """What it notes with a trial is the trial's once that takes the proposal, and not before."""
    chosen = Choice("a.b:C", {"arguments": {}, "time_limit_s": 60})
    space = Space((Parameter("x", "float", low=0.0, high=1.0),))
    study = replace(make("tpe", space, trials=9, max_parallel=4), sampler=chosen)
    ledger = ledgers.make(db, study)
    begun = [claim(ledger) for _ in range(4)]
    assert not any(one.sampled for one in begun)
    one = Preparer(study, PostgresStorage(db, steps=False), ledger.study_id, Mine)  # type: ignore[arg-type]
    assert one.step() == (True, False) and one.step() == (True, False)
    fifth, sixth = (PostgresStorage(db).get_trial(begun[3].trial_id + n) for n in (1, 2))
    assert (fifth.state, fifth.params, fifth.system_attrs) == (TrialState.WAITING, {}, {})
    claims = [claim(ledger) for _ in range(2)]
    assert [take(ledger, each.token) for each in claims] == [{"x": 0.04}, {"x": 0.05}]
    fifth, sixth = (PostgresStorage(db).get_trial(each.trial_id) for each in claims)
    assert fifth.system_attrs["mine"] == {"shown": [0, 1, 2, 3], "odd": float("inf")}
    assert sixth.system_attrs["mine"]["shown"] == [
        0,
        1,
        2,
        3,
        4,
    ]  # what is prepared counts as running
    assert noted(ledger, fifth._trial_id)["sampler"] == "a.b:C"


def test_auto_is_not_gp_where_a_proposal_was_to_be_there(db: Database) -> None:
    study = make("auto", NUMBERS, trials=40, max_parallel=4)
    storage = PostgresStorage(db)
    assert propose.weighed(study, storage, 0, is_late=True).sampler.type == "tpe"
