"""A trial's learning curve and its re-run's in one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.core.study import Study
from sweep.results.figures import (
    BLUE,
    INSTALL,
    VERMILLION,
    new_figure,
    on_axis,
    save,
    set_legend,
    set_limits,
    set_title,
    value_label,
)
from sweep.tasks.side_runs.reproduction import Verdict


def plot_rerun(
    study: Study, verdict: Verdict, curves: Sequence[Mapping[int, float]], path: Path
) -> str:
    """Draw both curves into a PNG file; return why there is none, "" where there is.

    Args:
        curves: Step to objective: the trial's, and the re-run's.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return INSTALL
    series = [[(s, on_axis(v)) for s, v in curve.items() if math.isfinite(v)] for curve in curves]
    values = [value for one in series for _, value in one]
    if not values:
        return "neither run reported a finite value"
    figure, axes = new_figure()
    set_limits(values, study.objective, axes)
    styles = (
        {"color": BLUE, "linewidth": 4.5, "alpha": 0.45, "label": f"trial {verdict.trial}"},
        {
            "color": VERMILLION,
            "linewidth": 1.5,
            "linestyle": "--",
            "marker": "o",
            "markersize": 4,
            "label": f"again (re-run {verdict.k})",
        },
    )
    for points, style in zip(series, styles, strict=True):
        if points:
            axes.plot(*zip(*points, strict=True), **style)
    if verdict.apart_from is not None:
        axes.axvline(
            verdict.apart_from,
            color="#555555",
            linewidth=1,
            linestyle=":",
            label=f"apart from step {verdict.apart_from}",
        )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("step")
    axes.set_ylabel(value_label(study.objective))
    said = verdict.verdict
    if verdict.relative_difference is not None:
        said += f", relative difference {verdict.relative_difference:.3g}"
    set_title(axes, f"{study.name}: trial {verdict.trial} and its re-run", said)
    set_legend(figure, axes)
    save(figure, path)
    return ""
