"""The storage's benchmark runs, here with a handful of trials; its numbers mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.storage import Bench, rates_table

pytestmark = pytest.mark.real


class Running:
    """A server as the benchmark starts one."""

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self.pid = pid

    def url(self) -> str:
        return self._url


SLOW = [pytest.param(kind, marks=pytest.mark.long) for kind in ("each", "journal", "ours", "rdb")]


@pytest.mark.parametrize("kind", ["sweep", "claims", *SLOW])
def test_a_kind(kind: str, fresh_url: str, postgres_server: Any, tmp_path: Path) -> None:
    """Two workers do something, and fail at nothing."""
    url = fresh_url.replace("postgresql://", "postgresql+psycopg2://")
    bench = Bench(Running(url, postgres_server.process.pid), tmp_path)
    result = bench.measure(kind, 2, 5, 1.0)
    assert (result["kind"], result["workers"], result["finished"]) == (kind, 2, 5)
    assert result["stuck"] == 0
    assert result["errors"] == 0, result["said"]
    assert result["rate"] > 0
    assert rates_table([result]).splitlines()[-1].startswith(f"| {kind} | 5 | 2 |")
