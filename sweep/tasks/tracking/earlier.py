"""What counts of a trial's earlier attempts, for a tool that follows one attempt at a time.

An attempt's first step of a metric cuts what earlier ones reported of that metric there and beyond;
what it never reports stays (DESIGN's lineage, as the database reads it). Which metrics an attempt
reports is known only as it goes, so a metric's earlier values come when it is first reported, and
those of the others at the attempt's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sweep.core.trial import Report


class Earlier:
    """The earlier attempts of one attempt, and what of them was not handed out yet.

    Args:
        read: Returns the earlier attempts' reports, oldest attempt first; asked once, when the
            attempt reports something or ends.
    """

    def __init__(self, read: Callable[[], Iterable[Sequence[Report]]]) -> None:
        self._read = read
        self._left: dict[str, list[Report]] | None = None
        self._seen: set[str] = set()

    def before(self, reports: Sequence[Report]) -> list[Report]:
        """Return what counts of the metrics that are reported for the first time here."""
        found: list[Report] = []
        for name, first in _first_steps(reports).items():
            if name not in self._seen:
                self._seen.add(name)
                found += [old for old in self._take(name) if old.step < first]
        return found

    def rest(self) -> list[Report]:
        """Return what counts of the metrics that the attempt has not reported at all."""
        return [report for name in sorted(self._lineage()) for report in self._take(name)]

    def _take(self, name: str) -> list[Report]:
        return self._lineage().pop(name, [])

    def _lineage(self) -> dict[str, list[Report]]:
        if self._left is None:
            self._left = {}
            for reports in self._read():
                for name, first in _first_steps(reports).items():
                    kept = [old for old in self._left.get(name, []) if old.step < first]
                    own = [
                        Report(report.step, report.time_s, {name: report.metrics[name]})
                        for report in reports
                        if name in report.metrics
                    ]
                    self._left[name] = kept + own
        return self._left


def _first_steps(reports: Iterable[Report]) -> dict[str, int]:
    found: dict[str, int] = {}
    for report in reports:
        for name in report.metrics:
            found[name] = min(found.get(name, report.step), report.step)
    return found
