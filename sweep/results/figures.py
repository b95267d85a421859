"""What all pictures share: their colours, their axes, their titles and how they are saved.

matplotlib is imported when a picture is drawn, and never pyplot: there may be no display, and a
notebook's own figures stay as they are. Colours are Okabe and Ito's, which colour-blind people tell
apart; what a colour says, a marker or a label says too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from sweep.core.files import write_atomic
from sweep.core.study import Objective

INSTALL = "Plots need matplotlib: pip install 'sweep-hpo[report]'"
BLUE, ORANGE, GREEN, VERMILLION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
GREY, FAINT = "#555555", "#BBBBBB"
TOP_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE)

LOG_RATIO = 30.0  # values that span more than this get a logarithmic axis
LEAST_SHOWN, MOST_SHOWN = 1e-100, 1e100
SHOWN_SHARE = 0.9  # of the results lie inside the axis; the worst are drawn at its edge
GOOD_MARGIN, BAD_MARGIN = 0.14, 0.06  # of the values' span; the best's label needs room


def on_axis(value: float) -> float:
    """Return where an axis has a finite value: at 0 or at 1e100 what is beyond that in size.

    Ratios and margins of what is drawn are finite then; 5e-324 beside 5 has neither.
    """
    return 0.0 if abs(value) < LEAST_SHOWN else max(-MOST_SHOWN, min(MOST_SHOWN, value))


def spans_decades(values: Sequence[float]) -> bool:
    """Tell whether placed values are all positive and far apart."""
    return min(values) > 0 and max(values) / min(values) > LOG_RATIO


def set_limits(
    values: Sequence[float], objective: Objective, axes: Any, best: float | None = None
) -> tuple[float, float]:
    """Set the value axis so that the good end is seen, and return what it shows.

    A few bad results must not squeeze the good ones into a line: a minimised positive value that
    spans decades gets a logarithmic axis, and the worst tenth is left out where it would take more
    than half the axis.

    Args:
        values: As ``on_axis`` has them.
        best: Is seen as well; results that break the constraints may lie beyond it.
    """
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if objective.direction == "minimize" and spans_decades(ordered):
        axes.set_yscale("log")
        ratio = high / low
        axes.set_ylim(low / ratio**GOOD_MARGIN, high * ratio**BAD_MARGIN)
        return low, high
    kept = max(1, math.ceil(SHOWN_SHARE * len(ordered)))
    cut = ordered[-kept] if objective.direction == "maximize" else ordered[kept - 1]
    if best is not None:
        cut = min(cut, best) if objective.direction == "maximize" else max(cut, best)
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


def value_label(objective: Objective) -> str:
    better = "higher" if objective.direction == "maximize" else "lower"
    return f"{_plain(objective.metric)} ({better} is better)"


def _plain(text: str) -> str:
    """Return text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def new_figure() -> tuple[Any, Any]:
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


def set_title(axes: Any, title: str, below: str) -> None:
    axes.set_title(_plain(title), loc="left", fontsize=14, weight="bold", pad=24)
    axes.text(0, 1.025, _plain(below), transform=axes.transAxes, fontsize=10, color=GREY)


def set_legend(figure: Any, axes: Any) -> None:
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


def save(figure: Any, path: Path) -> bool:
    out = BytesIO()
    figure.savefig(out, format="png")
    write_atomic(path, out.getvalue())
    return True
