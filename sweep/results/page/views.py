"""The rows behind each chart: plain numbers, computed from a report's source.

Pure. Where a study is so large that its marks would hide each other, a view holds a part of them,
and says of how many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core import outcomes
from sweep.core.json_text import text_of
from sweep.core.space import Parameter
from sweep.core.study import Objective
from sweep.core.trial import TrialRecord
from sweep.results.feasibility import BREAKS
from sweep.results.figures import on_axis
from sweep.results.page import accounts
from sweep.results.page.source import Source
from sweep.storage.series import Series

Cells = list[dict[str, Any]]

LOG_RATIO = 30.0  # values that span more than this get a logarithmic axis
SHOWN_SHARE = 0.9  # of the results lie inside the axis; the worst are drawn at its edge
MARGIN = 0.06  # of the values' span
TOP = 5  # curves in colour
MOST_CURVES = 300  # faint ones
MOST_STEPS = 200  # points of one curve
MOST_LINES = 300  # of parallel coordinates
MOST_POINTS = 2000  # of one slice
MOST_SLICES = 9
MOST_LANES = 64
GRID = 32  # cells of a contour along each side
NOWHERE = -0.09  # on parallel coordinates: below the axis of a parameter that a trial lacks
OVERLAP = 0.004  # of a map's side: its cells overlap, or seams would be seen between them
DIGITS = 6  # in charts: a pixel needs no more, and a page of 10,000 trials stays small


@dataclass(frozen=True)
class Scale:
    """What a value axis shows: from low to high, values outside at its edge."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class View:
    """The rows of a chart, and of how many they are a part."""

    cells: Cells
    shown: int = 0
    total: int = 0

    @property
    def is_part(self) -> bool:
        return self.shown < self.total


def short(value: float) -> float:
    """Return a number with as many digits as a chart needs, where an axis has it."""
    return float(f"{on_axis(value):.{DIGITS}g}") if math.isfinite(value) else value


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of the items, the first among them, spread evenly."""
    if len(items) <= most:
        return list(items)
    return [items[int(place * len(items) / most)] for place in range(most)]


def scale_of(values: Sequence[float], direction: str, best: float | None = None) -> Scale | None:
    """Return a value axis on which the good end is seen; None without a finite value.

    A few bad results must not squeeze the good ones into a line: a minimised positive value that
    spans decades gets a logarithmic axis, and the worst tenth is drawn at the edge where it would
    take more than half the axis.

    Args:
        best: Is seen as well; results that break the constraints may lie beyond it.
    """
    ordered = sorted(on_axis(value) for value in values if math.isfinite(value))
    if not ordered:
        return None
    best = None if best is None else on_axis(best)
    low, high = ordered[0], ordered[-1]
    if direction == "minimize" and low > 0 and high / low > LOG_RATIO:
        ratio = high / low
        return Scale(low / ratio**MARGIN, high * ratio**MARGIN, True)
    kept = max(1, math.ceil(SHOWN_SHARE * len(ordered)))
    cut = ordered[-kept] if direction == "maximize" else ordered[kept - 1]
    if best is not None:
        cut = min(cut, best) if direction == "maximize" else max(cut, best)
    good = high if direction == "maximize" else low
    if abs(good - cut) < 0.5 * (high - low) and cut != good:
        low, high = min(good, cut), max(good, cut)
    span = (high - low) or abs(high) or 1.0
    return Scale(low - MARGIN * span, high + MARGIN * span)


def results(source: Source) -> View:
    """Return each result in the order they ended: place, value, state, trial, time.

    The time is since the first attempt began, in the unit of ``clock``.
    """
    time = _timer(source)
    cells = [
        {
            "place": place,
            "value": short(record.values[0]),
            "state": kind_of(record),
            "trial": record.number,
            "time": time(record),
        }
        for place, record in enumerate(accounts.finished(source), 1)
    ]
    return View(cells, len(cells), len(cells))


def kind_of(record: TrialRecord) -> str:
    """Return a trial's state, or that it is complete but breaks the constraints."""
    is_broken = record.state == outcomes.COMPLETE and not record.is_feasible
    return BREAKS if is_broken else record.state


def best_so_far(source: Source) -> View:
    """Return the best value after so many results and so long: one row for each new best."""
    time = _timer(source)
    done = accounts.finished(source)
    steps = accounts.improvements(done, source.study.objective.direction)
    cells = [
        {
            "place": place,
            "value": short(record.values[0]),
            "trial": record.number,
            "time": time(record),
        }
        for place, record in steps
    ]
    if cells:
        cells.append({**cells[-1], "place": len(done), "time": time(done[-1])})
    return View(cells, len(steps), len(steps))


def clock(source: Source) -> tuple[str, float]:
    """Return the unit of time that suits a study, and its seconds."""
    begin = accounts.first_claim(source)
    ended = [accounts.end_of(attempt) for _, attempt in accounts.attempts(source)]
    whole_s = (max(ended) - begin).total_seconds() if begin is not None else 0.0
    for name, unit_s in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if whole_s > 3 * unit_s:
            return name, unit_s
    return "seconds", 1.0


def _timer(source: Source) -> Callable[[TrialRecord], float | None]:
    begin, unit_s = accounts.first_claim(source), clock(source)[1]

    def time(record: TrialRecord) -> float | None:
        if begin is None or record.ended is None:
            return None
        return short((record.ended - begin).total_seconds() / unit_s)

    return time


def curves(source: Source) -> View:
    """Return the objective over the steps: trial, step, value, group (state, or "1. trial 7")."""
    having = [r for r in source.records if len(_finite(source, r)) > 1]
    top = [r for r in having if source.can_win(r)][:TOP]
    others = [r for r in having if r not in top]
    drawn = evenly(others, MOST_CURVES)
    cells = []
    for record in (*drawn, *top):
        group = _label(source, record) if record in top else record.state
        for step, value in evenly_with_last(_finite(source, record), MOST_STEPS):
            cells.append(
                {"trial": record.number, "step": step, "value": short(value), "group": group}
            )
    return View(cells, len(top) + len(drawn), len(having))


def _label(source: Source, record: TrialRecord) -> str:
    return f"{source.places[record.number]}. trial {record.number}: {record.values[0]:.5g}"


def evenly_with_last(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of the items, evenly, the first and the last among them."""
    return list(items) if len(items) <= most else [*evenly(items[:-1], most - 1), items[-1]]


def _finite(source: Source, record: TrialRecord) -> list[tuple[int, float]]:
    curve = source.series.get(record.number)
    return [] if curve is None else finite_points(curve)


def finite_points(curve: Series) -> list[tuple[int, float]]:
    """Return a curve's points that can be drawn: (step, value)."""
    pairs = zip(curve.steps, curve.values, strict=True)
    return [(step, value) for step, value in pairs if math.isfinite(value)]


def complete_scale(source: Source) -> Scale | None:
    """Return the first objective's scale over the complete trials."""
    values = [record.values[0] for record in valued(source)]
    best = source.best.values[0] if source.best is not None else None
    return scale_of(values, source.study.objective.direction, best)


def valued(source: Source) -> list[TrialRecord]:
    """Return complete trials whose values are finite, best first."""
    return [record for record in source.records if source.places[record.number] is not None]


def varied(source: Source, important: Mapping[str, float]) -> list[Parameter]:
    """Return the parameters that took two values or more, the most important first."""
    seen: dict[str, set[str]] = {}
    for record in source.records:
        for name, value in record.params.items():
            seen.setdefault(name, set()).add(repr(value))
    found = [p for p in source.study.space if len(seen.get(p.name, ())) > 1]
    return sorted(found, key=lambda p: -important.get(p.name, 0.0))


def parallel(source: Source, parameters: Sequence[Parameter]) -> tuple[View, Cells]:
    """Return the lines of parallel coordinates and the marks at their axes.

    Lines: trial, axis (0, 1, …; the objective is the last), y (0 at the bottom), value (of the
    objective), state. A trial without a parameter passes below its axis. Marks: axis, y, text.
    """
    done = valued(source)
    drawn = evenly(done, MOST_LINES)
    value_scale = complete_scale(source)
    if len(drawn) < 2 or value_scale is None:
        return View([]), []  # one line between axes says no more than a table
    last = len(parameters)
    cells, marks = [], []
    for axis, parameter in enumerate(parameters):
        place, ticks = _axis(parameter, [r.params.get(parameter.name) for r in done])
        marks += [{"axis": axis, "y": y, "text": text} for y, text in ticks]
        lacking = False
        for record in drawn:
            has = parameter.name in record.params
            y = place(record.params[parameter.name]) if has else NOWHERE
            cells.append(
                {
                    "trial": record.number,
                    "axis": axis,
                    "y": short(y),
                    "value": short(record.values[0]),
                    "state": kind_of(record),
                }
            )
            lacking = lacking or not has
        if lacking:
            marks.append({"axis": axis, "y": NOWHERE, "text": "none"})
    ends = (value_scale.low, value_scale.high)
    place_value = _linear(*ends, log=value_scale.log)
    marks += [{"axis": last, "y": y, "text": f"{end:.4g}"} for y, end in enumerate(ends)]
    for record in drawn:
        y = min(1.0, max(0.0, place_value(record.values[0])))
        cells.append(
            {
                "trial": record.number,
                "axis": last,
                "y": short(y),
                "value": short(record.values[0]),
                "state": kind_of(record),
            }
        )
    return View(cells, len(drawn), len(done)), marks


def _axis(parameter: Parameter, values: Sequence[Any]) -> tuple[Any, list[tuple[float, str]]]:
    """Return what places a value between 0 and 1 on a parameter's axis, and its marks."""
    if parameter.type == "categorical":
        texts = [text_of(choice) for choice in parameter.choices]
        places = {text: (place + 0.5) / len(texts) for place, text in enumerate(texts)}
        marks = [(y, text) for text, y in places.items()]
        return lambda value: places.get(text_of(value), NOWHERE), marks
    low, high = bounds(parameter, values)
    return _linear(low, high, parameter.log), [(0.0, f"{low:.4g}"), (1.0, f"{high:.4g}")]


def bounds(parameter: Parameter, values: Sequence[Any]) -> tuple[float, float]:
    """Return the ends of a numeric parameter's axis: its own, or beyond them if values are.

    Those of trials of an earlier, wider space may be.
    """
    low, high = float(parameter.low or 0.0), float(parameter.high or 1.0)
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return min([low, *numbers]), max([high, *numbers])


def _linear(low: float, high: float, log: bool) -> Any:
    if low == high:
        return lambda value: 0.5
    if log:
        return lambda value: math.log(value / low) / math.log(high / low)
    return lambda value: (value - low) / (high - low)


def slice_of(source: Source, parameter: Parameter, objective: int = 0) -> View:
    """Return trial, x (the parameter's value), y (the objective's) and state of each result."""
    name = parameter.name
    found = [r for r in accounts.finished(source) if name in r.params and _is_finite(r, objective)]
    drawn = evenly(found, MOST_POINTS)
    # The best must be seen, whatever is left out.
    best = [r for r in valued(source)[:TOP] if name in r.params and r not in drawn]
    cells = [
        {
            "trial": r.number,
            "x": axis_value(parameter, r.params[name]),
            "y": short(r.values[objective]),
            "state": kind_of(r),
        }
        for r in (*drawn, *best)
    ]
    return View(cells, len(cells), len(found))


def _is_finite(record: TrialRecord, objective: int) -> bool:
    return len(record.values) > objective and math.isfinite(record.values[objective])


def axis_value(parameter: Parameter, value: Any) -> Any:
    return text_of(value) if parameter.type == "categorical" else short(float(value))


def contour(source: Source, across: Parameter, up: Parameter) -> tuple[View, View] | None:
    """Return an interpolated map of the objective over two numeric parameters, and its points.

    Cells of the map: x0, x1, y0, y1 (its corners) and value, by linear interpolation between the
    results; none outside of them. None where fewer than ten results span the plane.
    """
    names = (across.name, up.name)
    found = [r for r in valued(source) if all(name in r.params for name in names)]
    found = evenly(found, MOST_POINTS)
    if len(found) < 10:
        return None  # and nothing is loaded for it
    import numpy
    from scipy import interpolate, spatial

    points = numpy.array([[_transform(p, r.params[p.name]) for p in (across, up)] for r in found])
    values = numpy.array([r.values[0] for r in found])
    lows, highs = points.min(axis=0), points.max(axis=0)
    if not (highs > lows).all():
        return None
    unit = (points - lows) / (highs - lows)
    middles = (numpy.arange(GRID) + 0.5) / GRID
    grid_x, grid_y = numpy.meshgrid(middles, middles)
    try:
        grid = interpolate.griddata(unit, values, (grid_x, grid_y), method="linear")
    except spatial.QhullError:  # all on one line
        return None
    edges = numpy.linspace(0.0, 1.0, GRID + 1)
    ends = numpy.minimum(edges + OVERLAP, 1.0)
    xs, x_ends = (
        [_back(across, lows[0] + edge * (highs[0] - lows[0])) for edge in side]
        for side in (edges, ends)
    )
    ys, y_ends = (
        [_back(up, lows[1] + edge * (highs[1] - lows[1])) for edge in side]
        for side in (edges, ends)
    )
    cells = [
        {
            "x0": xs[column],
            "x1": x_ends[column + 1],
            "y0": ys[row],
            "y1": y_ends[row + 1],
            "value": short(float(grid[row, column])),
        }
        for row in range(GRID)
        for column in range(GRID)
        if math.isfinite(grid[row, column])
    ]
    dots = [
        {
            "x": axis_value(across, r.params[across.name]),
            "y": axis_value(up, r.params[up.name]),
            "value": short(r.values[0]),
            "trial": r.number,
            "state": kind_of(r),
        }
        for r in evenly(found, MOST_POINTS // 4)
    ]
    return View(cells), View(dots, len(dots), len(found))


def _transform(parameter: Parameter, value: Any) -> float:
    return math.log(value) if parameter.log else float(value)


def _back(parameter: Parameter, value: float) -> float:
    return short(math.exp(value) if parameter.log else float(value))


def front(source: Source, across: int, up: int) -> View:
    """Return the results of two of several objectives: x, y, trial, front (True on the first)."""
    found = [r for r in valued(source) if len(r.values) > max(across, up)]
    cells = [
        {
            "x": short(r.values[across]),
            "y": short(r.values[up]),
            "trial": r.number,
            "front": source.places[r.number] == 1 and r.is_feasible,
            "state": kind_of(r),
        }
        for r in found
    ]
    return View(cells, len(cells), len(cells))


def pairs(objectives: Sequence[Objective], most: int = 3) -> list[tuple[int, int]]:
    """Return pairs of objectives to draw against each other."""
    count = len(objectives)
    return [(a, b) for a in range(count) for b in range(a + 1, count)][:most]
