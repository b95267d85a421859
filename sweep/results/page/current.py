"""What a study does at the moment: its state, its counts, the trials that train, their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.times import stopwatch
from sweep.results.page import charts, views
from sweep.results.page.charts import Chart
from sweep.results.running import RunningLine
from sweep.results.running_text import ends, progress, shown_value, where
from sweep.results.status import Status, snapshot
from sweep.storage.series import Series, read_series

MOST_LINES = 40  # running trials in the table
MOST_CURVES = 12  # of them in the picture
NOT_ASKED: Mapping[str, Any] = {"tasks": None}  # what ``snapshot`` is told where nobody asked it


@dataclass(frozen=True)
class Current:
    """A study at one moment.

    Attributes:
        curves: The objective of the running trials that are drawn, as far as they have come.
    """

    status: Status
    curves: Sequence[Series] = field(default_factory=tuple)

    @property
    def lines(self) -> Sequence[RunningLine]:
        """The running trials of the table; those that wait for something come first."""
        return self.status.running[:MOST_LINES]

    @property
    def left_out(self) -> int:
        return len(self.status.running) - len(self.lines)

    @property
    def shares(self) -> list[tuple[str, int, float]]:
        """State, how many trials are in it, and their share of all in percent; no empty one."""
        counts, total = self.status.counts, max(self.status.total, 1)
        ended = (outcomes.COMPLETE, outcomes.PRUNED, outcomes.FAILED, outcomes.CANCELLED)
        order = (*ended, outcomes.RUNNING, outcomes.WAITING)
        return [(s, counts[s], 100 * counts[s] / total) for s in order if counts[s]]

    def row(self, line: RunningLine) -> dict[str, str]:
        """Return a running trial's cells as text."""
        return {
            "where": where(line),
            "step": progress(line),
            "last": shown_value(line.last),
            "best": shown_value(line.best),
            "time": stopwatch(line.elapsed_s),
            "ends": ends(line, self.status.now),
        }

    def chart(self) -> Chart | None:
        """Return the picture of the running trials' curves; None where there is nothing to draw."""
        cells = [
            {"trial": f"trial {s.trial}", "step": step, "value": views.short(value)}
            for s in self.curves
            for step, value in views.evenly_with_last(views.finite_points(s), views.MOST_STEPS)
        ]
        if not cells:
            return None
        drawn = len({cell["trial"] for cell in cells})
        total = len(self.status.running)
        caption = f"{self.status.metric} of the trials that train now."
        if drawn < total:
            caption += f" Drawn: {drawn} of {total}."
        return Chart(
            "running",
            "Running now",
            charts.running(cells, self.status.metric),
            caption,
            f"{self.status.metric} over the steps, one line for each running trial.",
        )


def read(opened: Opened, scheduler: Mapping[str, Any] | None = None) -> Current:
    """Return a study's state now.

    Args:
        scheduler: ``tasks``, ``notes`` and ``coming`` as ``status.snapshot`` takes them.

    Raises:
        DatabaseUnavailable: The database does not answer.
    """
    ledger = opened.ledger
    status = snapshot(ledger, opened.folder, **(scheduler or NOT_ASKED), shown=MOST_LINES)
    numbers = sorted(line.trial for line in status.running)[:MOST_CURVES]
    names = [opened.study.objective.metric]
    curves = (
        ledger.db.retry(lambda db: read_series(db, ledger.study_id, numbers=numbers, names=names))
        if numbers
        else []
    )
    return Current(status, curves)
