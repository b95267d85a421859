"""The benchmark of waits runs, here with a handful of trials; its numbers mean nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.orchestration import Bench, Case
from benchmarks.proposal_waits import COLUMNS, run

pytestmark = pytest.mark.real


def test_what_prepares_is_killed(fresh_url: str, postgres_server: Any, tmp_path: Path) -> None:
    """What was to be killed was, and trials have waited for their parameters once at most."""
    url = re.sub("^postgresql://", "postgresql+psycopg2://", fresh_url)
    bench = Bench(tmp_path, url, postgres_server.process.pid)
    row = run(bench, 0, Case((0.5,) * 24, 4, "tpe"), 8)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == len(COLUMNS)
    kills, prepared, made = (
        int(cells[COLUMNS.index(n)]) for n in ("kills", "prepared", "by tasks")
    )
    assert kills >= 1 and prepared >= 1 and prepared + made <= 24
