"""Pictures of a study: how its best result came about, its learning curves, its Pareto front.

matplotlib is imported when a picture is drawn, and never pyplot: there may be no display, and a
notebook's own figures stay as they are. Colours are Okabe and Ito's, which colour-blind people tell
apart; what a colour says, a marker or a label says too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import Any

from sweep.core import outcomes
from sweep.core.files import write_atomic
from sweep.core.study import Objective, Study
from sweep.core.trial import TrialRecord
from sweep.results.ranking import rank, ranks

INSTALL = "Plots need matplotlib: pip install 'sweep-hpo[report]'"
BLUE, ORANGE, GREEN, VERMILLION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
GREY, FAINT = "#555555", "#BBBBBB"
TOP_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE)

LOG_RATIO = 30.0  # values that span more than this get a logarithmic axis
SHOWN_SHARE = 0.9  # of the results lie inside the axis; the worst are drawn at its edge
GOOD_MARGIN, BAD_MARGIN = 0.14, 0.06  # of the values' span; the best's label needs room
LABEL_ROOM = 24.0  # pixels between points that get labels of their own
MOST_CURVES = 300  # faint ones: more hide each other
_FIRST = datetime.min.replace(tzinfo=timezone.utc)


def draw(records: Sequence[TrialRecord], study: Study, results: Path) -> tuple[list[Path], str]:
    """Draw what there is to draw into the results folder.

    Args:
        records: With their metrics, or there are no learning curves.

    Returns:
        The files, and a note where matplotlib is missing (then there are none).
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return [], INSTALL
    results.mkdir(mode=0o700, parents=True, exist_ok=True)
    pictures = {"history.png": plot_history, "curves.png": plot_curves}
    if study.is_multi_objective:
        pictures = {"front.png": plot_front}
    paths = []
    for name, plot in pictures.items():
        if plot(records, study, results / name):
            paths.append(results / name)
    return paths, ""


def plot_history(records: Sequence[TrialRecord], study: Study, path: Path) -> bool:
    """Draw each trial's result in the order they finished, and the best so far.

    Returns:
        False, without a file, when no trial is complete.
    """
    objective = study.objective
    done = sorted(
        (r for r in records if r.state in (outcomes.COMPLETE, outcomes.PRUNED) and _finite(r)),
        key=lambda r: (r.ended or _FIRST, r.number),
    )
    if not any(record.state == outcomes.COMPLETE for record in done):
        return False
    figure, axes = _figure()
    spots = {record.number: place for place, record in enumerate(done, 1)}
    best_x, best_y, best = _best_so_far(done, spots, objective)
    complete = [record for record in done if record.state == outcomes.COMPLETE]
    pruned = [record for record in done if record.state == outcomes.PRUNED]
    low, high = _limits([record.values[0] for record in done], objective, axes)
    size = 36 if len(done) <= 150 else 12
    for group, style in (
        (pruned, {"marker": "x", "color": FAINT, "label": f"pruned, last value ({len(pruned)})"}),
        (
            complete,
            {
                "marker": "o",
                "color": BLUE,
                "alpha": 0.75,
                "edgecolors": "none",
                "label": f"complete ({len(complete)})",
            },
        ),
    ):
        inside = [record for record in group if low <= record.values[0] <= high]
        if group:
            axes.scatter(
                [spots[r.number] for r in inside],
                [r.values[0] for r in inside],
                s=size,
                zorder=2,
                **style,
            )
    outside = [record for record in done if not low <= record.values[0] <= high]
    edge, marker = (low, "v") if objective.direction == "maximize" else (high, "^")
    beyond = "below" if marker == "v" else "above"
    if outside:
        axes.scatter(
            [spots[r.number] for r in outside],
            [edge] * len(outside),
            marker=marker,
            color=GREY,
            s=size,
            zorder=2,
            clip_on=False,
            label=f"{beyond} the axis ({len(outside)})",
        )
    axes.step(
        best_x, best_y, where="post", color=VERMILLION, linewidth=2, zorder=3, label="best so far"
    )
    axes.scatter(
        [spots[best.number]],
        [best.values[0]],
        marker="*",
        s=220,
        color=VERMILLION,
        edgecolors="white",
        linewidths=0.8,
        zorder=4,
    )
    _annotate(axes, spots[best.number], best, len(done), objective)
    axes.set_xlabel("trials, in the order they finished")
    axes.set_ylabel(_value_label(objective))
    axes.set_xlim(0.5 - 0.01 * len(done), len(done) * 1.01 + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    below = f"{len(complete)} complete and {len(pruned)} pruned of {study.trials} trials"
    _title(axes, f"{study.name}: best {objective.metric} so far", below)
    _legend(figure, axes)
    return _save(figure, path)


def _best_so_far(
    done: Sequence[TrialRecord], spots: dict[int, int], objective: Objective
) -> tuple[list[float], list[float], TrialRecord]:
    xs: list[float] = []
    ys: list[float] = []
    best: TrialRecord | None = None
    sign = -1.0 if objective.direction == "maximize" else 1.0
    for record in done:
        if record.state != outcomes.COMPLETE:
            continue
        if best is None or sign * record.values[0] < sign * best.values[0]:
            best = record
            xs.append(spots[record.number])
            ys.append(record.values[0])
    assert best is not None
    return [*xs, len(done)], [*ys, ys[-1]], best


def _annotate(axes: Any, place: int, best: TrialRecord, total: int, objective: Objective) -> None:
    right = place > 0.6 * total
    below = objective.direction == "maximize"
    axes.annotate(
        f"trial {best.number}: {best.values[0]:.6g}",
        (place, best.values[0]),
        xytext=(-10 if right else 10, 12 if below else -14),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom" if below else "top",
        color=VERMILLION,
        weight="bold",
        zorder=5,
    )


def plot_curves(records: Sequence[TrialRecord], study: Study, path: Path) -> bool:
    """Draw the objective over the steps: the five best in colour, the others faint.

    Returns:
        False, without a file, when no trial has reported at two steps.
    """
    from matplotlib.collections import LineCollection

    objective = study.objective
    curves = {
        record.number: [(s, v) for s, v in record.metrics.get(objective.metric, ()) if _ok(v)]
        for record in records
    }
    curves = {number: series for number, series in curves.items() if len(series) > 1}
    if not curves:
        return False
    order = [record for record in rank(records, study) if record.number in curves]
    places = ranks(records, study)
    top = [record for record in order if places[record.number]][: len(TOP_COLOURS)]
    others = [record for record in order if record not in top]
    stride = max(1, math.ceil(len(others) / MOST_CURVES))
    drawn = others[::stride]
    figure, axes = _figure()
    _limits([v for r in (*drawn, *top) for _, v in curves[r.number]], objective, axes)
    for record, colour, mark in zip(top, TOP_COLOURS, "osD^v", strict=False):
        steps, values = zip(*curves[record.number], strict=True)
        axes.plot(
            steps,
            values,
            color=colour,
            linewidth=1.8,
            zorder=4,
            marker=mark,
            markersize=5,
            markevery=max(1, len(steps) // 8),
            label=f"{places[record.number]}. trial {record.number}: {record.values[0]:.5g}",
        )
    if drawn:
        axes.add_collection(
            LineCollection(
                [curves[r.number] for r in drawn], colors=FAINT, linewidths=0.9, alpha=0.6, zorder=1
            )
        )
        label = f"others ({len(others)})" + (f", 1 in {stride} drawn" if stride > 1 else "")
        axes.plot([], [], color=FAINT, label=label)
        ends = [curves[r.number][-1] for r in drawn if r.state == outcomes.PRUNED]
        if ends:
            axes.scatter(
                *zip(*ends, strict=True),
                marker="x",
                s=18,
                color=GREY,
                zorder=2,
                label="pruned here",
            )
    first = min(series[0][0] for series in curves.values())
    last = max(series[-1][0] for series in curves.values())
    axes.set_xlim(first, last + 0.02 * (last - first))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("step")
    axes.set_ylabel(_value_label(objective))
    _title(
        axes,
        f"{study.name}: {objective.metric} while training",
        f"the {len(top)} best of {len(curves)} trials in colour",
    )
    _legend(figure, axes)
    return _save(figure, path)


def plot_front(records: Sequence[TrialRecord], study: Study, path: Path) -> bool:
    """Draw the first two objectives against each other, and the Pareto front.

    Returns:
        False, without a file, when no trial is complete.
    """
    places = ranks(records, study)
    complete = [record for record in records if places[record.number] is not None]
    if not complete:
        return False
    figure, axes = _figure()
    front = sorted((r for r in complete if places[r.number] == 1), key=lambda r: r.values)
    rest = [record for record in complete if places[record.number] != 1]
    if rest:
        axes.scatter(
            [r.values[0] for r in rest],
            [r.values[1] for r in rest],
            s=30,
            color=FAINT,
            label=f"dominated ({len(rest)})",
            zorder=1,
        )
    two = len(study.objectives) == 2
    axes.plot(
        [r.values[0] for r in front],
        [r.values[1] for r in front],
        color=VERMILLION,
        linestyle="--" if two else "none",
        linewidth=1,
        marker="o",
        markersize=7,
        zorder=2,
        label=f"front ({len(front)}): no other trial is better in everything",
    )
    for index, (axis, name) in enumerate((("x", "set_xlabel"), ("y", "set_ylabel"))):
        getattr(axes, name)(_value_label(study.objectives[index]))
        if _spans_decades([record.values[index] for record in complete]):
            axes.set(**{f"{axis}scale": "log"})
    _number(axes, front if len(front) <= 12 else ())
    first, second = (objective.metric for objective in study.objectives[:2])
    more = "" if two else f"; {len(study.objectives)} objectives, of which two are drawn"
    _title(axes, f"{study.name}: {first} against {second}", f"numbers are trials{more}")
    _legend(figure, axes)
    return _save(figure, path)


def _number(axes: Any, front: Sequence[TrialRecord]) -> None:
    """Write the trials' numbers at their points; those that lie together share a label."""
    groups: list[tuple[Any, list[TrialRecord]]] = []
    axes.autoscale_view()  # the scales must be final before distances on the picture mean anything
    for record in front:
        at = axes.transData.transform(record.values[:2])
        if groups and max(abs(at - groups[-1][0])) < LABEL_ROOM:
            groups[-1][1].append(record)
        else:
            groups.append((at, [record]))
    for _, group in groups:
        text = ", ".join(str(number) for number in sorted(record.number for record in group))
        axes.annotate(
            text,
            group[-1].values[:2],
            xytext=(6, 5),
            textcoords="offset points",
            fontsize=9,
            color=GREY,
        )


def _ok(value: float) -> bool:
    return math.isfinite(value)


def _finite(record: TrialRecord) -> bool:
    return bool(record.values) and all(map(_ok, record.values))


def _spans_decades(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > LOG_RATIO


def _limits(values: Sequence[float], objective: Objective, axes: Any) -> tuple[float, float]:
    """Set the value axis so that the good end is seen, and return what it shows.

    A few bad results must not squeeze the good ones into a line: a minimised positive value that
    spans decades gets a logarithmic axis, and the worst tenth is left out where it would take more
    than half the axis.
    """
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if objective.direction == "minimize" and _spans_decades(ordered):
        axes.set_yscale("log")
        ratio = high / low
        axes.set_ylim(low / ratio**GOOD_MARGIN, high * ratio**BAD_MARGIN)
        return low, high
    kept = max(1, math.ceil(SHOWN_SHARE * len(ordered)))
    cut = ordered[-kept] if objective.direction == "maximize" else ordered[kept - 1]
    good = high if objective.direction == "maximize" else low
    if abs(good - cut) < 0.5 * (high - low) and cut != good:
        low, high = min(good, cut), max(good, cut)
    span = high - low or abs(high) or 1.0
    margins = (BAD_MARGIN, GOOD_MARGIN)
    if objective.direction != "maximize":
        margins = (GOOD_MARGIN, BAD_MARGIN)
    low, high = low - margins[0] * span, high + margins[1] * span
    axes.set_ylim(low, high)
    return low, high


def _value_label(objective: Objective) -> str:
    better = "higher" if objective.direction == "maximize" else "lower"
    return f"{_plain(objective.metric)} ({better} is better)"


def _plain(text: str) -> str:
    """Return text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def _figure() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(True, color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _title(axes: Any, title: str, below: str) -> None:
    axes.set_title(_plain(title), loc="left", fontsize=14, weight="bold", pad=24)
    axes.text(0, 1.025, _plain(below), transform=axes.transAxes, fontsize=10, color=GREY)


def _legend(figure: Any, axes: Any) -> None:
    """Put the legend below the picture, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(3, len(labels)),
        frameon=False,
        fontsize=10,
    )


def _save(figure: Any, path: Path) -> bool:
    out = BytesIO()
    figure.savefig(out, format="png")
    write_atomic(path, out.getvalue(), mode=0o644)
    return True
