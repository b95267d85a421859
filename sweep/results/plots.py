"""Pictures of a study: how its best result came about, its learning curves, its Pareto front."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sweep.core import outcomes
from sweep.core.files import make_folders
from sweep.core.study import Objective, Study
from sweep.core.trial import TrialRecord, better
from sweep.results.feasibility import BREAKS, none_feasible_of
from sweep.results.figures import (
    BLUE,
    FAINT,
    GREY,
    INSTALL,
    PURPLE,
    TOP_COLOURS,
    VERMILLION,
    new_figure,
    on_axis,
    save,
    set_legend,
    set_limits,
    set_title,
    spans_decades,
    value_label,
)
from sweep.results.ranking import rank, ranks

LABEL_ROOM = 24.0  # pixels between points that get labels of their own
MOST_CURVES = 300  # faint ones: more hide each other
_BROKEN = {"marker": "v", "facecolors": "none", "edgecolors": PURPLE, "linewidths": 1.1}
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
    make_folders(results)
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
    figure, axes = new_figure()
    spots = {record.number: place for place, record in enumerate(done, 1)}
    complete = [r for r in done if r.state == outcomes.COMPLETE and r.is_feasible]
    broken = [r for r in done if r.state == outcomes.COMPLETE and not r.is_feasible]
    pruned = [record for record in done if record.state == outcomes.PRUNED]
    best = best_of([on_axis(record.values[0]) for record in complete], objective)
    low, high = set_limits([on_axis(record.values[0]) for record in done], objective, axes, best)
    size = 36 if len(done) <= 150 else 12
    for group, style in (
        (pruned, {"marker": "x", "color": FAINT, "label": f"pruned, last value ({len(pruned)})"}),
        (broken, {"label": f"{BREAKS} ({len(broken)})", **_BROKEN}),
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
        inside = [record for record in group if low <= on_axis(record.values[0]) <= high]
        if group:
            axes.scatter(
                [spots[r.number] for r in inside],
                [on_axis(r.values[0]) for r in inside],
                s=size,
                zorder=2,
                **style,
            )
    outside = [record for record in done if not low <= on_axis(record.values[0]) <= high]
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
    if complete:
        _draw_best(axes, complete, spots, len(done), objective)
    axes.set_xlabel("trials, in the order they finished")
    axes.set_ylabel(value_label(objective))
    axes.set_xlim(0.5 - 0.01 * len(done), len(done) * 1.01 + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    below = (
        f"{len(complete) + len(broken)} complete and {len(pruned)} pruned of {study.trials} trials"
    )
    title = f"{study.name}: best {objective.metric} so far"
    if not complete:
        title = f"{study.name}: no trial keeps to the constraints"
    set_title(axes, title, below)
    set_legend(figure, axes)
    return save(figure, path)


def _draw_best(
    axes: Any,
    complete: Sequence[TrialRecord],
    spots: dict[int, int],
    total: int,
    objective: Objective,
) -> None:
    """Draw the best so far as a line, and the best of all as a star."""
    best = complete[0]
    xs, ys = [float(spots[best.number])], [on_axis(best.values[0])]
    for record in complete[1:]:
        if better(record.values[0], best.values[0], objective.direction):
            best = record
            xs.append(spots[record.number])
            ys.append(on_axis(record.values[0]))
    axes.step(
        [*xs, total],
        [*ys, ys[-1]],
        where="post",
        color=VERMILLION,
        linewidth=2,
        zorder=3,
        label="best so far",
    )
    axes.scatter(
        [spots[best.number]],
        [on_axis(best.values[0])],
        marker="*",
        s=220,
        color=VERMILLION,
        edgecolors="white",
        linewidths=0.8,
        zorder=4,
    )
    _annotate(axes, spots[best.number], best, total, objective)


def _annotate(axes: Any, spot: int, best: TrialRecord, total: int, objective: Objective) -> None:
    right = spot > 0.6 * total
    below = objective.direction == "maximize"
    axes.annotate(
        f"trial {best.number}: {best.values[0]:.6g}",
        (spot, on_axis(best.values[0])),
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
        record.number: [
            (s, on_axis(v)) for s, v in record.metrics.get(objective.metric, ()) if math.isfinite(v)
        ]
        for record in records
    }
    curves = {number: series for number, series in curves.items() if len(series) > 1}
    if not curves:
        return False
    order = [record for record in rank(records, study) if record.number in curves]
    places = ranks(records, study)
    top = [r for r in order if places[r.number] and r.is_feasible][: len(TOP_COLOURS)]
    others = [record for record in order if record not in top]
    stride = max(1, math.ceil(len(others) / MOST_CURVES))
    drawn = others[::stride]
    figure, axes = new_figure()
    best = best_of([on_axis(record.values[0]) for record in top], objective)
    set_limits([v for r in (*drawn, *top) for _, v in curves[r.number]], objective, axes, best)
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
    axes.set_ylabel(value_label(objective))
    below = f"the {len(top)} best of {len(curves)} trials in colour"
    infeasible = none_feasible_of(study, records)
    if not top:
        below = "no trial keeps to the constraints" if infeasible else "no trial is complete"
    set_title(axes, f"{study.name}: {objective.metric} while training", below)
    set_legend(figure, axes)
    return save(figure, path)


def plot_front(records: Sequence[TrialRecord], study: Study, path: Path) -> bool:
    """Draw the first two objectives against each other, and the Pareto front.

    Returns:
        False, without a file, when no trial is complete.
    """
    places = ranks(records, study)
    complete = [
        dataclasses.replace(record, values=tuple(map(on_axis, record.values)))
        for record in records
        if places[record.number] is not None
    ]
    if not complete:
        return False
    figure, axes = new_figure()
    front = sorted(
        (r for r in complete if places[r.number] == 1 and r.is_feasible), key=lambda r: r.values
    )
    rest = [r for r in complete if places[r.number] != 1 and r.is_feasible]
    broken = [r for r in complete if not r.is_feasible]
    if broken:
        axes.scatter(
            [r.values[0] for r in broken],
            [r.values[1] for r in broken],
            s=30,
            label=f"{BREAKS} ({len(broken)})",
            zorder=1,
            **_BROKEN,
        )
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
    if front:
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
        getattr(axes, name)(value_label(study.objectives[index]))
        if spans_decades([record.values[index] for record in complete]):
            axes.set(**{f"{axis}scale": "log"})
    _number(axes, front if len(front) <= 12 else ())
    first, second = (objective.metric for objective in study.objectives[:2])
    more = "" if two else f"; {len(study.objectives)} objectives, of which two are drawn"
    below = f"numbers are trials{more}" if front else "no trial keeps to the constraints"
    set_title(axes, f"{study.name}: {first} against {second}", below)
    set_legend(figure, axes)
    return save(figure, path)


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


def best_of(values: Sequence[float], objective: Objective) -> float | None:
    """Return the best of some values; None of none."""
    pick = max if objective.direction == "maximize" else min
    return pick(values, default=None)


def _finite(record: TrialRecord) -> bool:
    return bool(record.values) and all(map(math.isfinite, record.values))
