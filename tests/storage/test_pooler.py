"""A study through a real PgBouncer in transaction mode: each statement may meet another session."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from sweep.core.errors import DatabaseUnavailable, SweepError
from sweep.core.system import processes
from sweep.storage import locks, tables, tracker_database
from sweep.storage.connection import Database
from sweep.storage.url import dsn
from tests.cli.commands import wait_for_runners
from tests.needs import require, skip_or_fail
from tests.ports import quiet_port
from tests.postgres_fixture import Server
from tests.toys import write_toy
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.real

LOCKS = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND database = " + (
    "(SELECT oid FROM pg_database WHERE datname = current_database())"
)


def find_pgbouncer() -> str:
    """Return the program; as root it is installed where Debian's packages are to be had."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    found = shutil.which("pgbouncer", path=path)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "-y", "-q", "-o", "DPkg::Lock::Timeout=300", "pgbouncer"],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )
        found = shutil.which("pgbouncer", path=path)
    if found is None:
        skip_or_fail("postgres", "no PgBouncer: apt-get install pgbouncer")
    return found


@pytest.fixture
def pool_mode() -> str:
    """When the pooler hands out another session."""
    return "transaction"


@pytest.fixture
def pooled_names() -> str:
    """Which databases the pooler knows; "" for the test's own alone."""
    return ""


@pytest.fixture
def pooled(fresh_url: str, tmp_path: Path, pool_mode: str, pooled_names: str) -> Iterator[str]:
    """A URL of the same database behind a pooler that keeps four sessions."""
    program, parts = find_pgbouncer(), urlsplit(fresh_url)
    port = quiet_port()
    folder = tmp_path / "pooler"
    folder.mkdir()
    database = parts.path.lstrip("/")
    password = unquote(parts.password or "").replace("'", "''")
    (folder / "pgbouncer.ini").write_text(
        "[databases]\n"
        f"{pooled_names or database} = host={parts.hostname} port={parts.port} "
        f"user={parts.username} "
        f"password='{password}'\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = any\npool_mode = {pool_mode}\ndefault_pool_size = 4\nmax_client_conn = 100\n"
    )
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    child = processes.spawn(
        [program, *user, str(folder / "pgbouncer.ini")],
        cwd=folder,
        env=os.environ,
        stdout=folder / "out",
    )
    url = f"postgresql://pooled@127.0.0.1:{port}/{database}"
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert child.poll() is None and time.monotonic() < deadline, (
                folder / "out"
            ).read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
                break
            time.sleep(0.05)
        yield url
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


@pytest.mark.parametrize("pool_mode", ["statement"])
def test_a_pooler_without_transactions_is_refused(pooled: str) -> None:
    """At once, and not as a database that is away."""
    with closing(Database(pooled)) as db, pytest.raises(SweepError, match="statement pooling") as e:
        db.retry(lambda db: db.execute("SELECT 1"))
    assert not isinstance(e.value, DatabaseUnavailable)
    assert "pool_mode = transaction" in e.value.hint


def test_locks_are_given_back(pooled: str, fresh_url: str) -> None:
    """No lock stays behind in a session of the pooler's, and each excludes others meanwhile."""
    tables.create(pooled)
    with closing(Database(fresh_url)) as db:
        for _ in range(8):
            with closing(Database(pooled)) as one, closing(Database(pooled)) as other:
                # The server ends the sessions of the round before a little after they were left.
                wait_for(lambda one=one: locks.try_submit(one, "digits"), "the lock")
                assert not locks.try_submit(other, "digits")
                wait_for(lambda other=other: locks.try_submit(other, "letters"), "the other lock")
            with closing(Database(pooled)) as one, locks.held(one, locks.PROPOSE, 1):
                assert one.execute("SELECT 1") == [(1,)]
        wait_for(lambda: db.execute(LOCKS) == [(0,)], "the last lock to be given back")


def test_a_trackers_database_that_the_pooler_does_not_know(
    pooled: str, postgres_server: Server
) -> None:
    """It is made, and what to write into PgBouncer's file is said."""
    with closing(Database(pooled)) as db:
        name = dsn(tracker_database.url_beside(db))["dbname"]
        try:
            with pytest.raises(SweepError, match=r"no such database|config error") as raised:
                tracker_database.make(db)
        finally:
            postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")
    assert "PgBouncer's [databases]" in raised.value.hint


@pytest.mark.long
@pytest.mark.parametrize("pooled_names", ["*"])
def test_mlflow_through_a_pooler(pooled: str, postgres_server: Server, tmp_path: Path) -> None:
    """Its tables are made once, by two at the same time, and a run comes back as it was written."""
    require("mlflow")
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    with closing(Database(pooled)) as db:
        tracker_database.make(db)
        tracker_database.make(db)
        assert tracker_database.is_made(db)
        url = tracker_database.url_beside(db)

    def open_client(_: int) -> MlflowClient:
        with tracker_database.with_tables(url):
            client = MlflowClient(url)
            client.search_experiments(max_results=1)
        return client

    try:
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(open_client, range(2))
        made = one.create_run(one.create_experiment("e", artifact_location=tmp_path.as_uri()))
        metrics = [Metric("acc", step / 8, 1000 + step, step) for step in range(20)]
        one.log_batch(made.info.run_id, metrics=metrics)
        found = other.get_metric_history(made.info.run_id, "acc")
        assert [(point.step, point.value) for point in found] == [(n, n / 8) for n in range(20)]
    finally:
        postgres_server.sql(f"DROP DATABASE {dsn(url)['dbname']} WITH (FORCE)")


def test_statements_keep_their_names(pooled: str) -> None:
    """Two of us prepare different statements first; each gets its own back, in any session."""
    questions = ("SELECT %(a)s::int + 1", "SELECT %(a)s::int * 10")
    with closing(Database(pooled)) as one, closing(Database(pooled)) as other:
        for number in range(20):
            for db, question in ((one, questions[0]), (other, questions[1])):
                expected = number + 1 if question is questions[0] else number * 10
                found = db.retry(
                    lambda db, q=question, n=number: db.execute_prepared(q, {"a": n}),
                    patience_s=10.0,
                    transaction=number % 2 == 0,
                )
                assert found == [(expected,)]


def test_a_study(sweep: Any, runs: Path, tmp_path: Path, pooled: str, fresh_url: str) -> None:
    """It is launched, launched again and goes to its end, as by the server itself."""
    env = {"SWEEP_STORAGE": pooled}
    path = write_toy(tmp_path, trials=12, parallel=4)
    path.write_text(re.sub("sampler: .*", "sampler: tpe", path.read_text()))
    done = sweep("launch", path, "--wait", env=env)
    assert done.code == 0, done
    again = sweep("launch", path, "--set", "trials=16", "--wait", env=env)
    assert again.code == 0, again
    assert "finished: 16 complete" in again.out
    wait_for_runners(runs / "toy")  # the finaliser takes locks as well
    with closing(Database(fresh_url)) as db:
        wait_for(lambda: db.execute(LOCKS) == [(0,)], "the last lock to be given back")
