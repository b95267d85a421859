"""``sweep mlflow``: what hinders it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Sweep
from tests.toys import write_toy


def test_what_hinders_it_is_said(
    sweep: Sweep, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that sends MLflow nothing, and one whose runs are on another server."""
    assert sweep("launch", write_toy(tmp_path, trials=1, fixed="{steps: 1}"), "--wait").code == 0
    found = sweep("mlflow")
    assert found.code == 2 and "holds nothing of MLflow's" in found.err
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:hidden@127.0.0.1:5")
    found = sweep("mlflow", "--url")
    assert found.code == 2 and "MLFLOW_TRACKING_URI is set" in found.err
    assert "hidden" not in found.err + found.out
