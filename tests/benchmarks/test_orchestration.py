"""The benchmark of orchestration runs, here with a handful of trials; its numbers mean nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.orchestration import COLUMNS, Bench, Case, table

pytestmark = pytest.mark.real

CASE = Case((0.1,) * 6, 2)


@pytest.mark.parametrize(
    "runner", ["sweep", "bare", pytest.param("optuna", marks=pytest.mark.long)]
)
def test_a_runner(runner: str, fresh_url: str, postgres_server: Any, tmp_path: Path) -> None:
    """Each trial is run once, by two slots, and what it cost is a number."""
    url = re.sub("^postgresql://", "postgresql+psycopg2://", fresh_url)
    bench = Bench(tmp_path, url, postgres_server.process.pid)
    result = bench.run("tiny", CASE, runner, CASE.durations)
    assert (result.trials, result.slots, result.ideal_s) == (6, 2, pytest.approx(0.3))
    assert result.wall_s > result.ideal_s and result.gap_median_s is not None
    assert result.cpu_s is not None and result.database_cpu_s is not None
    assert (result.command_cpu_s is not None) == (runner == "sweep")
    row = table([result]).splitlines()[-1]
    assert row.startswith(f"| tiny | {runner} |") and row.count("|") == len(COLUMNS) + 1
