"""The command line on a database of a test's own, and a study that has ended."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.commands import wait_for_runners
from tests.conftest import Sweep, run_sweep, stop_runs
from tests.postgres_fixture import Server
from tests.toys import write_toy


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """Run the command line on a database of the test's own, on the server that all share."""
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> Iterator[Sweep]:
    """The command line in a folder whose study, of 5 trials, has ended."""
    folder = tmp_path_factory.mktemp("finished")
    postgres_server.sql("CREATE DATABASE finished")
    env = {"SWEEP_STORAGE": postgres_server.url("finished")}
    call = partial(run_sweep, runs=folder / "runs", cwd=folder, env=env)
    assert call("launch", write_toy(folder, trials=5), "--wait").code == 0
    wait_for_runners(folder / "runs" / "toy")
    yield call
    stop_runs(folder / "runs")
    postgres_server.sql("DROP DATABASE finished WITH (FORCE)")
