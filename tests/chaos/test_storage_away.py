"""The database is restarted, hung or cut off in the middle of work: nothing is lost or doubled."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Study
from sweep.core.trial import End, Place, Report
from sweep.search.propose import first_rows
from sweep.storage import PostgresStorage, bulk, studies, tables
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.chaos.scene import SEED
from tests.chaos.tcp_proxy import Proxy
from tests.postgres_fixture import Server, running_server
from tests.waiting import PATIENCE_S

TRIALS, STEPS, WORKERS = 24, 3, 4


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that tests may stop."""
    with running_server(max_connections=20) as server:
        tables.create(server.url())
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


def make(url: str, name: str) -> Ledger:
    study = Study(
        name=name,
        command=("true",),
        objectives=(Objective("loss"),),
        space=Space((Parameter("lr", "float", low=0.1, high=1.0),)),
        trials=TRIALS,
        sampler=Choice("random"),
        max_parallel=WORKERS,
    )
    db = Database(url)
    with db.transaction():
        study_id = studies.insert_study(db, study)
        bulk.insert_waiting_trials(db, study_id, first_rows(study, TRIALS))
    return Ledger(db, study_id, study)


class Pace:
    """Workers do not run ahead of who harms them: however fast this machine is, there is a look at
    the study between one harm and the next."""

    def __init__(self) -> None:
        self.done = 0
        self.seen = 0
        self.changed = threading.Condition()

    def step(self) -> None:
        """A worker has ended a trial: it waits where a look is due."""
        with self.changed:
            self.done += 1
            self.changed.wait_for(lambda: self.done - self.seen < WORKERS, PATIENCE_S)

    def look(self, done: int) -> None:
        with self.changed:
            self.seen = max(self.seen, done)
            self.changed.notify_all()


def pull_all(url: str, ledger: Ledger, pace: Pace, failures: list[BaseException]) -> None:
    """Claim, report and finish trials until none is left, as a worker does."""
    db = Database(url, timeout_s=2.0)
    mine = Ledger(db, ledger.study_id, ledger.study)

    def ask(statement: Callable[[], object]) -> object:
        return db.retry(lambda _: statement(), patience_s=120.0, transaction=False)

    try:
        while True:
            token = secrets.token_hex(16)
            claim = ask(lambda token=token: mine.claim(token, Place("job", 0, "node")))  # type: ignore[misc]
            if claim is None:
                return
            number = claim.number  # type: ignore[attr-defined]
            for step in range(STEPS):
                report = Report(step, 0.0, {"loss": float(number + step)})
                ask(lambda token=token, r=report: mine.record(token, [r]))  # type: ignore[misc]
                time.sleep(0.01)
            ask(
                lambda token=token, n=number: mine.finish(  # type: ignore[misc]
                    token, End("finished"), "complete", [float(n)]
                )
            )
            pace.step()
    except BaseException as error:
        failures.append(error)
    finally:
        db.close()


def check(ledger: Ledger) -> None:
    """Every trial was run once, by one attempt, and all that it reported is there."""
    db = ledger.db
    assert db.execute(
        "SELECT t.number, t.state::text, v.value FROM trials t JOIN trial_values v USING (trial_id)"
        " WHERE t.study_id = %s ORDER BY t.number",
        (ledger.study_id,),
    ) == [(number, "COMPLETE", float(number)) for number in range(TRIALS)]
    attempts = ledger.all_attempts()
    assert Counter(a.trial for a in attempts) == Counter(range(TRIALS))
    assert {a.outcome for a in attempts} == {"finished"}
    for table in ("sweep_metric", "trial_intermediate_values"):
        rows = db.execute(
            f"SELECT t.number, m.step FROM {table} m JOIN trials t USING (trial_id) "
            "WHERE t.study_id = %s ORDER BY 1, 2",
            (ledger.study_id,),
        )
        assert rows == [(number, step) for number in range(TRIALS) for step in range(STEPS)]


def work_through(url: str, ledger: Ledger, harm: Callable[[float], None]) -> None:
    """Let workers run all trials while ``harm`` is called with the share that is done."""
    failures: list[BaseException] = []
    pace = Pace()
    threads = [
        threading.Thread(target=pull_all, args=(url, ledger, pace, failures))
        for _ in range(WORKERS)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 240.0
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < deadline
        done = ledger.db.retry(lambda _: ledger.count_states().get("COMPLETE", 0), patience_s=60.0)
        pace.look(done)  # first: they are at work while they are harmed
        harm(done / TRIALS)
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert failures == []
    check(ledger)
    ledger.db.close()


def test_cut_off_in_the_middle(server: Server, proxy: Proxy) -> None:
    """Connections break at any moment, also between a COMMIT and its answer."""
    ledger = make(server.url(), "cut")
    through = server.url().replace(f":{server.port}/", f":{proxy.port}/")
    chance = random.Random(SEED)
    print(f"seed {SEED}")

    def cut(share: float) -> None:
        time.sleep(chance.uniform(0.0, 0.2))
        if share < 0.9 and proxy.cuts < 12:
            proxy.cut()

    work_through(through, ledger, cut)
    assert proxy.cuts >= 5


def test_a_network_that_swallows(server: Server, proxy: Proxy) -> None:
    """Packets vanish for longer than a call waits; what was asked twice took place once."""
    ledger = make(server.url(), "swallowed")
    through = server.url().replace(f":{server.port}/", f":{proxy.port}/")
    silences = [0.3]

    def swallow(share: float) -> None:
        if silences and share >= silences[0]:
            silences.pop()
            with proxy.silence():
                time.sleep(3.0)
            proxy.cut()

    work_through(through, ledger, swallow)
    assert silences == []


@pytest.mark.parametrize("how", ["restarted", "hung"])
def test_the_server_is(how: str, server: Server) -> None:
    """It crashes and comes back; or all its processes are stopped (SIGSTOP) for a while."""
    ledger = make(server.url(), how)
    at = [0.6, 0.2]

    def harm(share: float) -> None:
        if at and share >= at[-1]:
            at.pop()
            if how == "restarted":
                server.stop()
                time.sleep(0.5)
                server.start()
            else:
                with server.frozen():
                    time.sleep(2.5)

    work_through(server.url(), ledger, harm)
    assert at == []


def test_optunas_own_loop_goes_on(server: Server, proxy: Proxy, tmp_path: Path) -> None:
    """``study.optimize`` on our storage lives through cuts; finished trials are exact."""
    through = server.url().replace(f":{server.port}/", f":{proxy.port}/")
    storage = PostgresStorage(through, patience_s=60.0)
    study = optuna.create_study(storage=storage, study_name="optuna")
    chance = random.Random(SEED)

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        for step in range(3):
            if chance.random() < 0.15:
                proxy.cut()
            trial.report(x * step, step)
        return x

    study.optimize(objective, n_trials=20)
    assert proxy.cuts >= 3
    assert [t.number for t in study.trials] == list(range(20))
    for trial in study.trials:
        assert trial.value == trial.params["x"]
        assert trial.intermediate_values == {s: trial.params["x"] * s for s in range(3)}
    storage.database.close()
