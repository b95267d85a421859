"""Charts of the search space: parallel coordinates, slices, contours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweep.core import outcomes
from sweep.core.space import Parameter
from sweep.core.study import Objective
from sweep.results.feasibility import BREAKS
from sweep.results.page.charts import (
    BEST_MARK,
    GREY,
    MANY,
    Spec,
    base,
    names_apart,
    shapes,
    states,
    tip,
    value_axis,
)
from sweep.results.page.views import Cells, Scale, View, bounds, text_of

SCHEME = "viridis"
BANDS = 9  # of a contour
MOST_TICKS = 12  # of an axis of whole numbers


def _colour(objective: Objective, scale: Scale | None, title: str | None) -> Spec:
    """Return a value as colour: the brighter, the better."""
    shown: Spec = {"scheme": SCHEME, "reverse": objective.direction == "minimize"}
    if scale is not None:
        shown |= {"domain": [scale.low, scale.high], "clamp": True}
        shown["type"] = "log" if scale.log else "linear"
    return {
        "field": "value",
        "type": "quantitative",
        "title": title,
        "scale": shown,
        "legend": {
            "gradientLength": {"expr": "min(220, width - 20)"},
            "direction": "horizontal",
            "tickCount": 3,
            "labelOverlap": "greedy",
            "labelSeparation": 8,
            "format": ".3~g",
        },
    }


def parallel(
    view: View, marks: Cells, names: Sequence[str], objective: Objective, scale: Scale | None
) -> Spec:
    """Return parallel coordinates, one line a trial, coloured by the objective."""
    last = len(names)
    labels = [*names_apart(names, 18), objective.metric]
    x = {
        "field": "axis",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [-0.12, last + 0.22], "nice": False},
        "axis": None,
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [-0.12, 1.12], "nice": False},
    }
    # The best are drawn last, over the others.
    sign = -1.0 if objective.direction == "minimize" else 1.0
    order = sorted(view.cells, key=lambda cell: (cell["state"] != BREAKS, sign * cell["value"]))
    heads = [
        {"axis": axis, "y": 1.06 + 0.05 * (axis % 2), "text": label}
        for axis, label in enumerate(labels)
    ]
    rules = [{"axis": axis, "y": 0.0, "y2": 1.0} for axis in range(last + 1)]
    return base(
        {
            "data": {"values": order},
            "mark": {"type": "line", "strokeWidth": 1.1, "opacity": 0.55, "interpolate": "linear"},
            "encoding": {
                "x": x,
                "y": y,
                "detail": {"field": "trial"},
                "order": {"field": "axis"},
                "color": {
                    **_colour(objective, scale, objective.metric),
                    "condition": {"test": f"datum.state === '{BREAKS}'", "value": GREY},
                },
                "tooltip": tip(("trial", "trial"), ("value", objective.metric), ("state", "state")),
            },
        },
        {
            "data": {"values": rules},
            "mark": {"type": "rule", "color": GREY},
            "encoding": {"x": x, "y": y, "y2": {"field": "y2"}},
        },
        {
            "data": {"values": marks},
            "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 10, "limit": 90},
            "encoding": {"x": x, "y": y, "text": {"field": "text"}},
        },
        {
            "data": {"values": heads},
            "mark": {"type": "text", "align": "center", "fontWeight": "bold", "limit": 110},
            "encoding": {"x": x, "y": y, "text": {"field": "text"}},
        },
        height=380,
    )


def parameter_axis(parameter: Parameter, field: str, title: str | None = None) -> Spec:
    """Return the encoding of a parameter's value."""
    named = parameter.name if title is None else title
    if parameter.type == "categorical":
        return {
            "field": field,
            "type": "nominal",
            "title": named,
            "sort": None,
            "scale": {"domain": [text_of(choice) for choice in parameter.choices]},
            "axis": {"labelAngle": 0, "labelLimit": 80},
        }
    shown: dict[str, Any] = {"type": "log", "nice": False, "padding": 6}
    if not parameter.log:
        shown |= {"type": "linear", "zero": False}
    axis: dict[str, Any] = {"tickCount": 5, "labelOverlap": True}
    if parameter.log:
        axis["format"] = "~g"
    elif parameter.type == "int":
        axis |= {"tickMinStep": 1, "format": "d"}
        low, high = int(parameter.low or 0), int(parameter.high or 0)
        if high - low <= MOST_TICKS:
            axis["values"] = list(range(low, high + 1))
    return {"field": field, "type": "quantitative", "title": named, "scale": shown, "axis": axis}


def _titled_within(encoding: Spec, side: str) -> Spec:
    """Cut an axis' title to the chart's side, "width" or "height": a long name would leave it."""
    return {**encoding, "axis": {**encoding["axis"], "titleLimit": {"expr": side}}}


def slice_of(
    view: View,
    parameter: Parameter,
    objective: Objective,
    scale: Scale | None,
    winner: int | None = None,
) -> Spec:
    """Return the objective over one parameter.

    Args:
        winner: The trial that is marked as the best.
    """
    present = [
        s
        for s in (outcomes.PRUNED, BREAKS, outcomes.COMPLETE)
        if any(cell["state"] == s for cell in view.cells)
    ]
    many = len(view.cells) > MANY
    x = _titled_within(parameter_axis(parameter, "x"), "width")
    encoding: Spec = {
        "x": x,
        "y": {**value_axis(objective, scale, "y"), "title": objective.metric},
        "color": states(present) | {"legend": None},
        "shape": shapes(present) | {"legend": None},
        "tooltip": tip(("trial", "trial"), ("x", parameter.name), ("y", objective.metric)),
    }
    layer: Spec = {
        "mark": {
            "type": "point",
            "filled": True,
            "size": 10 if many else 26,
            "opacity": 0.4 if many else 0.65,
        },
        "encoding": encoding,
    }
    if parameter.type == "categorical":  # else they would hide each other on one line
        layer["transform"] = [{"calculate": "random() - 0.5", "as": "jitter"}]
        encoding["xOffset"] = {
            "field": "jitter",
            "type": "quantitative",
            "scale": {"domain": [-1, 1]},
        }
    elif len({cell["x"] for cell in view.cells}) == 1 and parameter.low != parameter.high:
        low, high = bounds(parameter, [view.cells[0]["x"]])  # of one value no axis can be made
        x["scale"] = {**x["scale"], "domain": [low, high]}
    best = [cell for cell in view.cells if cell["trial"] == winner]
    others = [cell for cell in view.cells if cell["trial"] != winner]
    mark: Spec = {
        "data": {"values": best},
        "mark": BEST_MARK,
        "encoding": {key: encoding[key] for key in ("x", "y", "tooltip")},
    }
    layers = [*([layer] if others else []), *([mark] if best else [])]
    return base(*layers, height=210, data={"values": others})


def contour(
    grid: View,
    dots: View,
    across: Parameter,
    up: Parameter,
    objective: Objective,
    scale: Scale | None,
) -> Spec:
    """Return filled bands of the objective over two parameters, with the results as dots."""
    x = _titled_within(parameter_axis(across, "x0"), "width")
    y = _titled_within(parameter_axis(up, "y0"), "height")
    colour = _colour(objective, scale, objective.metric)
    if scale is not None and not scale.log:
        step = (scale.high - scale.low) / BANDS
        edges = [scale.low + step * band for band in range(1, BANDS)]
        cells = [
            {**cell, "value": edges[0] - step / 2 + step * sum(cell["value"] > e for e in edges)}
            for cell in grid.cells
        ]
    else:
        cells = grid.cells
    for axis in (x, y):
        axis["scale"] = {**axis["scale"], "padding": 0}
    return base(
        {
            "data": {"values": cells},
            "mark": "rect",
            "encoding": {
                "x": x,
                "x2": {"field": "x1"},
                "y": y,
                "y2": {"field": "y1"},
                "color": colour,
            },
        },
        {
            "data": {"values": dots.cells},
            "mark": {
                "type": "point",
                "filled": True,
                "color": "white",
                "opacity": 0.9,
                "stroke": "black",
                "strokeWidth": 0.6,
            },
            "encoding": {
                "x": {**x, "field": "x"},
                "y": {**y, "field": "y"},
                "shape": {
                    "condition": {"test": f"datum.state === '{BREAKS}'", "value": "cross"},
                    "value": "circle",
                },
                "size": {
                    "condition": {"test": f"datum.state === '{BREAKS}'", "value": 40},
                    "value": 16,
                },
                "tooltip": tip(("trial", "trial"), ("value", objective.metric), ("state", "state")),
            },
        },
        height=260,
    )
