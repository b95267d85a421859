"""A study of ours opens in Optuna and in its dashboard, by the URL that ``sweep db url`` prints."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import psycopg2
import pytest

from tests.conftest import Sweep, run_sweep, stop_runs
from tests.needs import require
from tests.ports import quiet_port
from tests.toys import write_toy
from tests.waiting import PATIENCE_S

TRIALS = 6
SERVE = "from optuna_dashboard._cli import main; main()"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """The command line in a folder whose embedded server holds one finished study."""
    require("dashboard")
    folder = tmp_path_factory.mktemp("dashboard")
    study = write_toy(folder, trials=TRIALS, fixed="{steps: 2}")
    call = partial(run_sweep, runs=folder / "runs", cwd=folder)
    assert call("launch", study, "--wait").code == 0
    yield call
    stop_runs(folder / "runs")


@pytest.fixture
def url(study: Sweep) -> str:
    """What ``sweep db url`` prints there."""
    ran = study("db", "url")
    assert (ran.code, ran.err) == (0, "")
    return ran.out.strip()


@pytest.fixture
def dashboard(url: str, tmp_path: Path) -> Iterator[str]:
    """The address of Optuna's dashboard on that server."""
    port = quiet_port()
    with (tmp_path / "dashboard.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, url, "--port", str(port), "--server", "wsgiref"],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                get(f"{address}/api/meta")
                break
            except OSError:
                log_text = (tmp_path / "dashboard.log").read_text()
                assert process.poll() is None and time.monotonic() < deadline, log_text
                time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        assert answer.status == 200
        return bytes(answer.read())


def test_dashboard_shows_the_study(dashboard: str, study: Sweep) -> None:
    """The dashboard lists the study, and gives each trial with its values, steps and parameters."""
    (listed,) = json.loads(get(f"{dashboard}/api/studies"))["study_summaries"]
    assert (listed["study_name"], listed["directions"]) == ("toy", ["maximize"])
    shown: dict[str, Any] = json.loads(get(f"{dashboard}/api/studies/{listed['study_id']}"))
    collected = {row["trial"]: row for row in json.loads(study("collect", "--format", "json").out)}
    assert sorted(collected) == list(range(TRIALS))
    trials = {trial["number"]: trial for trial in shown["trials"]}
    assert sorted(trials) == list(range(TRIALS))
    assert {trial["state"] for trial in trials.values()} == {"Complete"}
    assert {number: trial["values"] for number, trial in trials.items()} == {
        number: [row["value"]] for number, row in collected.items()
    }
    for number, trial in trials.items():
        params = {p["name"]: p["param_external_value"] for p in trial["params"]}
        given = {name: str(value) for name, value in collected[number]["params"].items()}
        assert params == {name: given[name] for name in ("x", "kind")}
        assert [point["step"] for point in trial["intermediate_values"]] == [0, 1]
    assert shown["objective_names"] == ["score"]
    assert sorted(item["name"] for item in shown["union_search_space"]) == ["kind", "x"]
    page = get(f"{dashboard}/dashboard/studies/{listed['study_id']}").decode()
    assert "<title>Optuna Dashboard</title>" in page


def test_optuna_reads_the_same(url: str, study: Sweep) -> None:
    """Plain Optuna, with its own storage, reads the best value, parameters and metric's name."""
    opened = optuna.load_study(study_name="toy", storage=url)
    (best,) = json.loads(study("collect", "--top", "1", "--format", "json").out)
    assert opened.best_value == best["value"]
    assert opened.best_trial.number == best["trial"]
    assert opened.best_params == {name: best["params"][name] for name in ("x", "kind")}
    assert opened.metric_names == ["score"]
    assert opened.direction == optuna.study.StudyDirection.MAXIMIZE
    assert len(opened.trials) == TRIALS
    assert len(opened.trials_dataframe()) == TRIALS


def test_url_for_psql_has_no_driver(study: Sweep, url: str) -> None:
    """`--psql` prints what libpq takes, `--no-password` what may be shown."""
    assert url.startswith("postgresql+psycopg2://sweep:")
    plain = study("db", "url", "--psql").out.strip()
    assert plain == url.replace("+psycopg2", "")
    psycopg2.connect(plain).close()
    password = url.split(":")[2].split("@")[0]
    assert study("db", "url", "--no-password").out.strip() == url.replace(password, "***")
