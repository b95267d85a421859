"""MLflow's own server over what a study has sent, as ``sweep mlflow`` starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sweep.core.paths import Runs
from sweep.storage import access
from sweep.storage.embedded import server
from tests.conftest import Sweep, sweep_environment
from tests.needs import mlflow_server_python, require
from tests.tasks.test_tracking import LAUNCH_S, check_mlflow, wait_for_no_feeder, write_resuming
from tests.waiting import text_of, wait_for


@pytest.mark.long
def test_its_server_shows_what_collect_shows(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """MLflow's client over MLflow's server over the embedded database, which stays up meanwhile;
    Ctrl-C ends it whole."""
    require("mlflow")
    require("mlflow_server")
    assert (
        sweep("launch", write_resuming(tmp_path, "mlflow"), "--wait", timeout_s=LAUNCH_S).code == 0
    )
    wait_for_no_feeder(runs / "resuming")
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweep", "mlflow", "--python", mlflow_server_python()],
            env=sweep_environment(runs),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        uri = wait_for(lambda: text_of(said).partition("/  (")[0].strip(), "its address")
        wait_for(lambda: answers(uri, process), "MLflow's server")
        check_mlflow(uri, runs)
        data = Path(access.read_note(Runs(runs).study("resuming"))["embedded"])
        assert access.stop_server(data) is False
        assert server.running(data)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert text_of(said).rstrip().endswith("It has ended.")
    wait_for(lambda: not answers(uri, None), "MLflow's server to be gone")


def answers(uri: str, process: subprocess.Popen[bytes] | None) -> bool:
    assert process is None or process.poll() is None
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5):
            return True
    except OSError:
        return False
