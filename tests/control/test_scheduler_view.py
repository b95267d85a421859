"""What the scheduler says of a study: how often it is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sweep.control.scheduler_view import SchedulerView
from sweep.core import executors


class Counted(SchedulerView):
    """Notes when everything that goes to the scheduler is asked."""

    def __init__(self, name: str, now_s: list[float]) -> None:
        schedule: Any = executors.get(name)
        super().__init__(SimpleNamespace(), schedule, now_s=lambda: now_s[0])  # type: ignore[arg-type]
        self.times: list[float] = []

    def _ask(self) -> dict[str, Any]:
        self.times.append(self.now_s())
        return {"asked": len(self.times)}


@pytest.mark.parametrize(("name", "times"), [("slurm", [0.0, 30.0, 60.0]), ("local", None)])
def test_a_view_that_stays_asks_a_cluster_every_30_s(name: str, times: list[float] | None) -> None:
    """Looking after the study included, however often the view is renewed."""
    now_s = [0.0]
    view = Counted(name, now_s)
    seen = []
    for tick in range(45):
        now_s[0] = 2.0 * tick
        seen.append(view.ask()["asked"])
    assert view.times == (times or [2.0 * tick for tick in range(45)])
    assert seen == sorted(seen)
