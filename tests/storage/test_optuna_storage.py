"""Our Optuna storage: Optuna's own test suite, and life beside RDBStorage on one database."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.testing.pytest_storages import StorageTestCase
from optuna.trial import FrozenTrial, TrialState

import sweep
from sweep.core.errors import StaleAttempt, SweepError
from sweep.storage import PostgresStorage
from sweep.storage.bulk import insert_waiting_trials
from sweep.storage.connection import Database
from sweep.storage.url import normalise
from tests.postgres_fixture import Server, copied, make_template
from tests.waiting import PATIENCE_S

MINIMIZE = [StudyDirection.MINIMIZE]
UNIT = FloatDistribution(0.0, 1.0)


@pytest.fixture
def storage(database_url: str) -> Iterator[PostgresStorage]:
    storage = PostgresStorage(database_url)
    yield storage
    storage.database.close()


@pytest.fixture
def optunas(database_url: str) -> Iterator[RDBStorage]:
    """Give Optuna's own storage on the same database."""
    storage = RDBStorage(normalise(database_url))
    yield storage
    storage.engine.dispose()


class TestOptunaSuite(StorageTestCase):
    """Every test that Optuna has for its storages."""


@pytest.fixture(scope="module")
def plain_database(postgres_server: Server) -> str:
    """Give a database that Optuna has prepared, not sweep, to be copied."""
    return make_template(
        postgres_server, "plain", lambda url: RDBStorage(normalise(url)).engine.dispose()
    )


@pytest.fixture
def plain_url(postgres_server: Server, plain_database: str) -> Iterator[str]:
    """Give a database that Optuna has prepared, not sweep."""
    with copied(postgres_server, plain_database) as url:
        yield url


class TestOnOptunasTablesAlone(StorageTestCase):
    """The same on a database that has no table of ours."""

    @pytest.fixture
    def storage(self, plain_url: str) -> Iterator[PostgresStorage]:
        storage = PostgresStorage(plain_url)
        yield storage
        storage.database.close()


def test_usable_by_itself(plain_url: str) -> None:
    """Two lines of a notebook, on a study that RDBStorage made; attributes of sweep load late."""
    optuna.create_study(study_name="s", storage=normalise(plain_url)).enqueue_trial({"x": 0.5})
    study = optuna.load_study(study_name="s", storage=sweep.storage.PostgresStorage(plain_url))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert [trial.number for trial in study.trials] == [0, 1]
    assert study.trials[0].value == 0.5
    study._storage.remove_session()


def test_tables_of_another_optuna(plain_url: str) -> None:
    """Which version they are of, which is needed, and what to do."""
    database = Database(plain_url)
    database.execute("UPDATE alembic_version SET version_num = 'v9.0.0.a'")
    with pytest.raises(SweepError, match=r"schema v9\.0\.0\.a.*needs schema v3\.2") as caught:
        PostgresStorage(plain_url)
    assert "Install a newer sweep" in caught.value.hint
    database.close()


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -5, 5)
    y = trial.suggest_int("y", 1, 100, log=True)
    z = trial.suggest_categorical("z", ["a", None, True, 2, 0.5])
    trial.set_user_attr("note", {"é": [1, None]})
    for step in range(3):
        trial.report(float("nan") if step == 1 else x * step, step)
    if trial.number % 5 == 4:
        raise optuna.TrialPruned
    return float("inf") if trial.number == 3 else x * x + y + (z is None)


def assert_same(a: list[FrozenTrial], b: list[FrozenTrial]) -> None:
    """Compare trials wholly; NaN equals NaN in their printed form.

    Optuna reads its tables without an order, so its dicts come in any.
    """
    assert [print_sorted(trial) for trial in a] == [print_sorted(trial) for trial in b]


def print_sorted(trial: FrozenTrial) -> str:
    """Return a trial's printed form with every dict of its own sorted by key."""
    fields = {
        name: sorted(value.items()) if isinstance(value, dict) else value
        for name, value in vars(trial).items()
    }
    return repr(sorted(fields.items()))


def test_both_storages_show_the_same(storage: PostgresStorage, optunas: RDBStorage) -> None:
    """Studies written in turn through either storage read equal through both."""
    ours = optuna.create_study(study_name="s", storage=storage, direction="maximize")
    ours.set_user_attr("k", [1, {"a": None}])
    theirs = optuna.load_study(study_name="s", storage=optunas)
    for study in (ours, theirs, ours):
        study.optimize(objective, n_trials=6)
    ours.enqueue_trial({"x": 1.5})
    theirs.enqueue_trial({"x": 2.5})
    assert_same(storage.get_all_trials(ours._study_id), optunas.get_all_trials(theirs._study_id))
    assert theirs.user_attrs == ours.user_attrs == {"k": [1, {"a": None}]}
    assert theirs.directions == ours.directions
    assert_same([ours.best_trial], [theirs.best_trial])
    assert [t.number for t in ours.trials] == list(range(20))


def test_history_follows_what_others_write(storage: PostgresStorage, optunas: RDBStorage) -> None:
    """After each change by another process the next look shows it, whatever was looked at before.

    The looks differ in what they ask for, because each leaves the history in another state.
    """
    study_id = storage.create_new_study(MINIMIZE)
    looks = [None, (TrialState.COMPLETE,), (TrialState.RUNNING, TrialState.COMPLETE), None]

    def check() -> None:
        for states in looks:
            assert_same(
                storage.get_all_trials(study_id, states=states),
                optunas.get_all_trials(study_id, states=states),
            )
        looks.append(looks.pop(0))

    check()
    with storage.database.transaction():
        waiting = insert_waiting_trials(storage.database, study_id, [{}] * 6)
    check()
    for trial_id in (waiting[3], waiting[0], waiting[1]):  # also out of order
        assert optunas.set_trial_state_values(trial_id, TrialState.RUNNING)
        check()
        optunas.set_trial_param(trial_id, "x", 0.5, UNIT)
        optunas.set_trial_intermediate_value(trial_id, 1, 0.25)
        optunas.set_trial_user_attr(trial_id, "u", 1)
        check()
    optunas.set_trial_state_values(waiting[0], TrialState.COMPLETE, [1.0])
    check()
    # Claimed and finished between two looks.
    for trial_id in (waiting[2], waiting[5]):
        optunas.set_trial_state_values(trial_id, TrialState.RUNNING)
        optunas.set_trial_state_values(trial_id, TrialState.FAIL)
    check()
    running = optunas.create_new_trial(study_id)
    check()
    for trial_id in (running, waiting[1], waiting[3]):
        optunas.set_trial_state_values(trial_id, TrialState.PRUNED)
    optunas.set_trial_user_attr(waiting[4], "on waiting", 1)
    check()
    # A finished one that is given back, as launch does after the user's code was corrected.
    storage.database.execute(
        "UPDATE trials SET state = 'WAITING' WHERE trial_id = %s", (waiting[2],)
    )
    check()
    optunas.set_trial_state_values(waiting[2], TrialState.RUNNING)
    optunas.set_trial_state_values(waiting[2], TrialState.COMPLETE, [2.0])
    check()
    assert storage.get_trial(waiting[2]).value == 2.0


def test_finished_trials_are_read_once(storage: PostgresStorage) -> None:
    """A second look at 500 finished trials moves no row of theirs."""
    study_id = storage.create_new_study(MINIMIZE)
    with storage.database.transaction():
        insert_waiting_trials(
            storage.database, study_id, [{"params": {"x": (0.5, distribution_to_json(UNIT))}}] * 500
        )
        storage.database.execute("UPDATE trials SET state = 'FAIL'")
    first = storage.get_all_trials(study_id, deepcopy=False)
    statements: list[str] = []
    execute = storage.database.execute
    storage.database.execute = lambda sql, params=None: (  # type: ignore[method-assign]
        statements.append(sql) or execute(sql, params)
    )
    second = storage.get_all_trials(study_id, deepcopy=False)
    assert len(first) == 500
    assert all(a is b for a, b in zip(first, second, strict=True))
    assert len(statements) == 1


def test_a_sampler_reads_no_steps_of_complete_trials(storage: PostgresStorage) -> None:
    """Those of others it needs; and one trial, asked for by itself, is whole."""
    study_id = storage.create_new_study(MINIMIZE)
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
    for state in states:
        trial_id = storage.create_new_trial(study_id)
        storage.set_trial_intermediate_value(trial_id, 3, 0.5)
        if state.is_finished():
            storage.set_trial_state_values(trial_id, state, [1.0])
    lean = PostgresStorage(storage.database, steps=False)
    for read in (lean, pickle.loads(pickle.dumps(lean))):
        found = read.get_all_trials(study_id)
        assert [(trial.state, trial.intermediate_values) for trial in found] == [
            (TrialState.COMPLETE, {}),
            (TrialState.PRUNED, {3: 0.5}),
            (TrialState.RUNNING, {3: 0.5}),
        ]
        assert [read.get_trial(t._trial_id).intermediate_values for t in found] == [{3: 0.5}] * 3
        assert [trial.values for trial in found[:2]] == [[1.0], [1.0]]


def test_waiting_trials_are_popped_by_optuna(storage: PostgresStorage, optunas: RDBStorage) -> None:
    """What bulk writes, Optuna's own ask takes: parameters, fixed parameters, attributes."""
    study_id = storage.create_new_study(MINIMIZE, "s")
    text = distribution_to_json(UNIT)
    rows = [
        {"params": {"x": (0.25, text), "a": (1.0, text)}, "user_attrs": {"u": "é"}},
        {"fixed_params": {"x": 0.75}, "system_attrs": {"s": [1]}},
        {},
    ]
    with storage.database.transaction():
        first = insert_waiting_trials(storage.database, study_id, rows)
    with storage.database.transaction():
        more = insert_waiting_trials(storage.database, study_id, [{}])
    assert [storage.get_trial_number_from_id(trial_id) for trial_id in first + more] == [0, 1, 2, 3]
    study = optuna.load_study(study_name="s", storage=optunas)
    assert [t.state for t in study.trials] == [TrialState.WAITING] * 4
    assert study.trials[0].params == {"x": 0.25, "a": 1.0}
    assert list(study.trials[0].params) == ["x", "a"]
    assert study.trials[0].user_attrs == {"u": "é"}
    assert study.trials[1].system_attrs == {"fixed_params": {"x": 0.75}, "s": [1]}
    assert [study.ask().suggest_float("x", 0, 1) for _ in range(2)] == [0.25, 0.75]
    with pytest.raises(KeyError), storage.database.transaction():
        insert_waiting_trials(storage.database, study_id + 1, [{}])


def test_ten_thousand_waiting_trials(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 trials with 3 parameters are a handful of statements (the ORM has 80 s of them)."""
    study_id = storage.create_new_study(MINIMIZE)
    text = distribution_to_json(UNIT)
    rows = [{"params": dict.fromkeys(("a", "b", "c"), (i / 10000, text))} for i in range(10_000)]
    statements = []
    execute = storage.database.execute

    def count(sql: str, *given: Any) -> Any:
        statements.append(sql)
        return execute(sql, *given)

    monkeypatch.setattr(storage.database, "execute", count)
    with storage.database.transaction():
        insert_waiting_trials(storage.database, study_id, rows)
    assert 0 < len(statements) < 10
    trials = storage.get_all_trials(study_id, deepcopy=False)
    assert [trial.number for trial in trials] == list(range(10_000))
    assert [trial.params["b"] for trial in trials] == [i / 10_000 for i in range(10_000)]


def test_numbers_are_unique_among_writers(database_url: str) -> None:
    """Trials added at once by both storages and in bulk are numbered 0 to n-1."""
    study_id = PostgresStorage(database_url).create_new_study(MINIMIZE)

    def by_bulk() -> None:
        database = Database(database_url)
        for _ in range(5):
            database.retry(lambda db: insert_waiting_trials(db, study_id, [{}] * 4), patience_s=30)
        database.close()

    def by_ours() -> None:
        storage = PostgresStorage(database_url)
        for _ in range(20):
            storage.create_new_trial(study_id)
        storage.database.close()

    def by_optuna() -> None:
        storage = RDBStorage(normalise(database_url))
        for _ in range(10):
            storage.create_new_trial(study_id)
        storage.engine.dispose()

    threads = [threading.Thread(target=work) for work in (by_bulk, by_ours, by_optuna, by_bulk)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = PostgresStorage(database_url).get_all_trials(study_id)
    assert [trial.number for trial in trials] == list(range(70))
    ids = [trial._trial_id for trial in trials]
    assert ids == sorted(ids)


def test_one_of_many_claims_a_waiting_trial(database_url: str) -> None:
    """WAITING to RUNNING is compare-and-set."""
    first = PostgresStorage(database_url)
    study_id = first.create_new_study(MINIMIZE)
    template = optuna.trial.create_trial(state=TrialState.WAITING)
    trial_ids = [first.create_new_trial(study_id, template) for _ in range(20)]
    won: list[int] = []

    def claim() -> None:
        storage = PostgresStorage(database_url)
        for trial_id in trial_ids:
            if storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                won.append(trial_id)
        storage.database.close()

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == trial_ids


def add_attempt(storage: PostgresStorage, trial_id: int, token: str) -> None:
    storage.database.execute(
        "INSERT INTO sweep_attempt (trial_id, number, token, host) VALUES (%s, 1, %s, 'h')",
        (trial_id, token),
    )


WRITES = {
    "param": lambda storage, trial_id: storage.set_trial_param(trial_id, "x", 0.5, UNIT),
    "step": lambda storage, trial_id: storage.set_trial_intermediate_value(trial_id, 1, 0.5),
    "user": lambda storage, trial_id: storage.set_trial_user_attr(trial_id, "k", 1),
    "system": lambda storage, trial_id: storage.set_trial_system_attr(trial_id, "k", 1),
    "state": lambda storage, trial_id: storage.set_trial_state_values(
        trial_id, TrialState.COMPLETE, [1.0]
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_fence(storage: PostgresStorage, name: str) -> None:
    """A storage with a token writes while its attempt lives, and to its own trial alone."""
    study_id = storage.create_new_study(MINIMIZE)
    mine, other = storage.create_new_trial(study_id), storage.create_new_trial(study_id)
    add_attempt(storage, mine, "mine")
    bound = PostgresStorage(storage.database, token="mine")
    before = repr(storage.get_trial(other))
    with pytest.raises(StaleAttempt):
        WRITES[name](bound, other)
    assert repr(storage.get_trial(other)) == before
    storage.database.execute("UPDATE sweep_attempt SET outcome = 'lost'")
    before = repr(storage.get_trial(mine))
    with pytest.raises(StaleAttempt):
        WRITES[name](bound, mine)
    assert repr(storage.get_trial(mine)) == before
    storage.database.execute("UPDATE sweep_attempt SET outcome = NULL")
    WRITES[name](bound, mine)
    assert repr(storage.get_trial(mine)) != before


def test_fence_holds_against_an_end_in_progress(storage: PostgresStorage) -> None:
    """A write that meets the attempt's end waits for it, and is refused."""
    study_id = storage.create_new_study(MINIMIZE)
    trial_id = storage.create_new_trial(study_id)
    add_attempt(storage, trial_id, "mine")
    bound = PostgresStorage(Database(storage.database.url), token="mine")
    refused: list[BaseException] = []

    def write() -> None:
        try:
            bound.set_trial_user_attr(trial_id, "late", 1)
        except StaleAttempt as error:
            refused.append(error)

    with storage.database.transaction():
        storage.database.execute("UPDATE sweep_attempt SET outcome = 'lost'")
        thread = threading.Thread(target=write)
        thread.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        give_up_at = time.monotonic() + PATIENCE_S
        while not storage.database.execute(waits)[0][0]:
            assert time.monotonic() < give_up_at, "the write does not wait"
            time.sleep(0.02)
    thread.join()
    bound.database.close()
    assert len(refused) == 1
    assert storage.get_trial(trial_id).user_attrs == {}


def test_claim_by_a_finished_trial_is_refused(storage: PostgresStorage) -> None:
    """A final trial takes no further write, as Optuna's storages have it."""
    trial_id = storage.create_new_trial(storage.create_new_study(MINIMIZE))
    storage.set_trial_state_values(trial_id, TrialState.FAIL)
    for write in WRITES.values():
        with pytest.raises(UpdateFinishedTrialError):
            write(storage, trial_id)


@pytest.mark.parametrize("by", ["ours", "optunas"])
def test_deleting_a_study_takes_our_rows_along(
    storage: PostgresStorage, optunas: RDBStorage, by: str
) -> None:
    """Optuna's own delete works on a study with attempts, metrics and re-runs; so does ours."""
    study_id = storage.create_new_study(MINIMIZE)
    trial_id = storage.create_new_trial(study_id)
    add_attempt(storage, trial_id, "t")
    storage.database.execute(
        "INSERT INTO sweep_metric VALUES (%s, 1, 'm', 0, 1.0, 0.0)", (trial_id,)
    )
    storage.database.execute(
        "INSERT INTO sweep_rerun (study_id, k, trial_id, kind, seed) VALUES (%s, 1, %s, 'r', 0)",
        (study_id, trial_id),
    )
    (storage if by == "ours" else optunas).delete_study(study_id)
    left = [
        storage.database.execute(f"SELECT count(*) FROM {table}")[0][0]
        for table in ("trials", "sweep_attempt", "sweep_metric", "sweep_rerun")
    ]
    assert left == [0, 0, 0, 0]
    with pytest.raises(KeyError):
        storage.get_all_trials(study_id)


def test_reconnects_by_itself(storage: PostgresStorage, postgres_server: Server) -> None:
    """Reads and writes go on after the connection was ended, and nothing is written twice."""
    study_id = storage.create_new_study(MINIMIZE)

    def cut() -> None:
        pid = storage.database.execute("SELECT pg_backend_pid()")[0][0]
        postgres_server.sql(f"SELECT pg_terminate_backend({pid})")

    cut()
    trial_id = storage.create_new_trial(study_id)
    cut()
    storage.set_trial_param(trial_id, "x", 0.5, UNIT)
    cut()
    assert storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [1.0])
    cut()
    assert [trial.value for trial in storage.get_all_trials(study_id)] == [1.0]


def test_database_without_tables(empty_url: str) -> None:
    """Opening an empty database says what to run."""
    with pytest.raises(SweepError, match="sweep launch"):
        PostgresStorage(empty_url)


def test_bad_data_is_a_storage_error(storage: PostgresStorage) -> None:
    """What the tables cannot hold is Optuna's StorageInternalError, and the storage serves on."""
    study_id = storage.create_new_study(MINIMIZE)
    with pytest.raises(optuna.exceptions.StorageInternalError):
        storage.set_study_user_attr(study_id, "k" * 513, 1)
    storage.set_study_user_attr(study_id, "k" * 512, 1)
    assert json.dumps(storage.get_study_user_attrs(study_id)) == json.dumps({"k" * 512: 1})
