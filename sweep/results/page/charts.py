"""Charts as Vega-Lite: the course of a study, its curves, its front, its importances.

A chart is plain data. Its colours are read on white and on black; what a colour says, a shape, a
label or a tooltip says too. Widths are the page's; pictures are given one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core import outcomes
from sweep.core.study import Objective
from sweep.results.feasibility import BREAKS
from sweep.results.page.views import Scale, View

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
BLUE, VERMILLION, GREEN, ORANGE, PURPLE, GREY = (
    "#3B8FD0",
    "#E0662F",
    "#1FA37A",
    "#D99A1C",
    "#B06CC4",
    "#8A8F98",
)
TOP_COLOURS = (VERMILLION, GREEN, ORANGE, PURPLE, BLUE)
BEST_MARK: Spec = {
    "type": "point",
    "filled": True,
    "shape": "diamond",
    "size": 110,
    "color": VERMILLION,
    "opacity": 1,
}
STATE_COLOURS = {
    outcomes.COMPLETE: BLUE,
    outcomes.PRUNED: GREY,
    outcomes.FAILED: ORANGE,
    BREAKS: PURPLE,
}
HEIGHT = 300
NAME_LETTERS = 24  # of a name beside a bar
MANY = 400  # marks above this many are small


@dataclass(frozen=True)
class Chart:
    """A chart with what is written above and below it.

    Attributes:
        key: Its name in the page and as a file.
        caption: What it shows, and what it leaves out.
        alt: The same in a sentence for those who do not see it.
        small: Whether several stand side by side.
    """

    key: str
    title: str
    spec: Spec
    caption: str = ""
    alt: str = ""
    small: bool = False


def base(*layers: Spec, height: int = HEIGHT, **more: Any) -> Spec:
    """Return a chart of these layers."""
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
        **more,
    }


def better_text(objective: Objective) -> str:
    better = "higher" if objective.direction == "maximize" else "lower"
    return f"{objective.metric} ({better} is better)"


def value_axis(objective: Objective, scale: Scale | None, field: str = "value") -> Spec:
    """Return the encoding of an objective's value; what lies outside the scale is at its edge."""
    shown: Spec = {"zero": False}
    if scale is not None:
        shown = {} if scale.log else shown
        shown |= {"domain": [scale.low, scale.high], "clamp": True, "nice": False}
        shown["type"] = "log" if scale.log else "linear"
    return {
        "field": field,
        "type": "quantitative",
        "title": better_text(objective),
        "scale": shown,
        "axis": {"titleLimit": {"expr": "height"}},  # a long name would leave the chart
    }


def names_apart(names: Sequence[str], most: int) -> list[str]:
    """Return names of at most so many letters, cut in the middle, no two of them the same.

    Where two would be, they keep more, until they are told apart.
    """
    while True:
        cut = [_cut(name, most) for name in names]
        if len(set(cut)) == len(set(names)):
            return cut
        most += 4


def _cut(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    head = (most - 1) // 2
    return f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"


def tip(*fields: tuple[str, str]) -> list[Spec]:
    """Return a tooltip of (field, title)."""
    return [{"field": field, "title": title} for field, title in fields]


def states(present: Sequence[str]) -> Spec:
    """Return the encoding of a trial's state by colour."""
    return {
        "field": "state",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(present), "range": [STATE_COLOURS[s] for s in present]},
    }


def shapes(present: Sequence[str]) -> Spec:
    marks = {outcomes.COMPLETE: "circle", outcomes.PRUNED: "cross", BREAKS: "triangle-down"}
    return {
        "field": "state",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(present), "range": [marks[s] for s in present]},
    }


def history(
    results: View,
    best: View,
    objective: Objective,
    scale: Scale | None,
    across: str,
    unit: str = "",
) -> Spec:
    """Return each result and the best so far.

    Args:
        across: "place" (in the order they ended) or "time".
        unit: Of the time.
    """
    title = "results, in the order they ended" if across == "place" else f"{unit} since the start"
    x: Spec = {
        "field": across,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": across == "time", "nice": False},
        "axis": {
            "labelOverlap": "greedy",
            "labelSeparation": 8,
            "tickCount": {"expr": "max(2, floor(width / 55))"},
        },
    }
    if across == "place":
        x["axis"] |= {"tickMinStep": 1, "format": "d"}
    y = value_axis(objective, scale)
    present = [
        s
        for s in (outcomes.COMPLETE, BREAKS, outcomes.PRUNED)
        if any(cell["state"] == s for cell in results.cells)
    ]
    many = len(results.cells) > MANY
    points = {
        "data": {"values": results.cells},
        "mark": {
            "type": "point",
            "filled": True,
            "size": 12 if many else 38,
            "opacity": 0.45 if many else 0.75,
        },
        "encoding": {
            "x": x,
            "y": y,
            "color": states(present),
            "shape": shapes(present),
            "tooltip": tip(("trial", "trial"), ("value", objective.metric), ("state", "state")),
        },
    }
    line = {
        "data": {"values": best.cells},
        "mark": {
            "type": "line",
            "interpolate": "step-after",
            "color": VERMILLION,
            "strokeWidth": 2,
        },
        "encoding": {"x": x, "y": y},
    }
    ends = best.cells[-2:-1]
    star = {
        "data": {
            "values": [
                {**cell, "text": f"trial {cell['trial']}: {cell['value']:.6g}"} for cell in ends
            ]
        },
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": BEST_MARK},
            {
                "mark": {
                    "type": "text",
                    "color": VERMILLION,
                    "fontWeight": "bold",
                    "baseline": "bottom",
                    "dy": -8,
                    "align": _align(ends, best.cells, across),
                },
                "encoding": {"text": {"field": "text"}},
            },
        ],
    }
    return base(points, line, star)


def _align(ends: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]], x: str) -> str:
    if not ends or not cells[-1][x]:
        return "left"
    share = ends[0][x] / cells[-1][x]
    return "left" if share < 0.3 else "right" if share > 0.7 else "center"


def curves(view: View, objective: Objective, scale: Scale | None) -> Spec:
    """Return learning curves: the best in colour, others faint, pruned ones fainter."""
    groups = list(dict.fromkeys(cell["group"] for cell in view.cells))
    faint = [group for group in groups if group in outcomes.STATES]
    top = [group for group in groups if group not in outcomes.STATES]
    x = {
        "field": "step",
        "type": "quantitative",
        "title": "step",
        "scale": {"zero": False, "nice": False},
        "axis": {"tickMinStep": 1, "format": "d"},
    }
    # What leaves the axis is cut off there: drawn along its edge it would look like a plateau.
    y = value_axis(objective, scale)
    y["scale"].pop("clamp", None)
    hover = tip(("trial", "trial"), ("step", "step"), ("value", objective.metric))
    layers = []
    if faint:
        layers.append(
            {
                "data": {"values": [cell for cell in view.cells if cell["group"] in faint]},
                "mark": {"type": "line", "strokeWidth": 1, "clip": True},
                "encoding": {
                    "x": x,
                    "y": y,
                    "detail": {"field": "trial"},
                    "tooltip": hover,
                    "color": {
                        "condition": {
                            "test": f"datum.group === '{outcomes.COMPLETE}'",
                            "value": BLUE,
                        },
                        "value": GREY,
                    },
                    "opacity": {
                        "condition": {
                            "test": f"datum.group === '{outcomes.COMPLETE}'",
                            "value": 0.28,
                        },
                        "value": 0.22,
                    },
                },
            }
        )
    if not top:
        return base(*layers)
    layers.append(
        {
            "data": {"values": [cell for cell in view.cells if cell["group"] in top]},
            "mark": {"type": "line", "strokeWidth": 2.2, "point": True, "clip": True},
            "encoding": {
                "x": x,
                "y": y,
                "tooltip": hover,
                "detail": {"field": "trial"},
                "color": {
                    "field": "group",
                    "type": "nominal",
                    "title": None,
                    "scale": {"domain": top[:5], "range": list(TOP_COLOURS[: len(top)])},
                    # On a narrow page a second column would be cut off.
                    "legend": {"columns": {"expr": "width < 420 ? 1 : 2"}, "labelLimit": 260},
                },
            },
        }
    )
    return base(*layers)


def running(cells: Sequence[Mapping[str, Any]], metric: str) -> Spec:
    """Return the curves of trials that train: rows of trial, step, value."""
    return base(
        {
            "mark": {"type": "line", "strokeWidth": 2, "point": True},
            "encoding": {
                "x": {
                    "field": "step",
                    "type": "quantitative",
                    "title": "step",
                    "scale": {"zero": False, "nice": False},
                    "axis": {"tickMinStep": 1, "format": "d"},
                },
                "y": {
                    "field": "value",
                    "type": "quantitative",
                    "title": metric,
                    "scale": {"zero": False},
                },
                "color": {
                    "field": "trial",
                    "type": "nominal",
                    "title": None,
                    "sort": None,
                    "scale": {"scheme": "tableau10"},
                    "legend": {"columns": {"expr": "max(1, floor(width / 90))"}},
                },
                "tooltip": tip(("trial", "trial"), ("step", "step"), ("value", metric)),
            },
        },
        height=220,
        data={"values": list(cells)},
    )


def bars(shares: Mapping[str, float]) -> Spec:
    """Return parameter importances."""
    cells = [
        {"name": name, "cut": cut, "share": share, "text": f"{share:.0%}"}
        for (name, share), cut in zip(
            shares.items(), names_apart(list(shares), NAME_LETTERS), strict=True
        )
    ]
    y = {
        "field": "cut",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"labelLimit": 240},
    }
    x = {
        "field": "share",
        "type": "quantitative",
        "title": "importance",
        "axis": {
            "format": "%",
            "labelExpr": "datum.value > 1 ? '' : datum.label",
            "labelOverlap": "greedy",
            "tickCount": 4,  # more would not all have room for their labels
        },
        # Room for the longest bar's own text, however narrow the chart is.
        "scale": {"domain": [0, 1.25 * max(shares.values())], "nice": False},
    }
    return base(
        {
            "mark": {"type": "bar", "color": BLUE},
            "encoding": {"x": x, "y": y, "tooltip": tip(("name", "parameter"), ("text", "share"))},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 4},
            "encoding": {"x": x, "y": y, "text": {"field": "text"}},
        },
        height=40 + 26 * len(cells),
        data={"values": cells},
    )


def pareto(view: View, across: Objective, up: Objective, scales: Sequence[Scale | None]) -> Spec:
    """Return two objectives of several against each other, the first front joined by steps."""
    x = value_axis(across, scales[0], "x")
    y = value_axis(up, scales[1], "y")
    first = sorted((c for c in view.cells if c["front"]), key=lambda c: (c["x"], c["y"]))
    hover = tip(("trial", "trial"), ("x", across.metric), ("y", up.metric))
    corner = "step-after" if across.direction == "minimize" else "step-before"
    others = [c for c in view.cells if not c["front"]]
    shown = [s for s in (outcomes.COMPLETE, BREAKS) if any(c["state"] == s for c in others)]
    behind: list[Spec] = (
        [
            {
                "data": {"values": others},
                "mark": {"type": "point", "filled": True, "opacity": 0.55, "size": 30},
                "encoding": {
                    "x": x,
                    "y": y,
                    "tooltip": hover,
                    "color": {
                        **states(shown),
                        "scale": {
                            "domain": shown,
                            "range": [PURPLE if s == BREAKS else GREY for s in shown],
                        },
                        "legend": {} if BREAKS in shown else None,
                    },
                    "shape": shapes(shown) | {"legend": {} if BREAKS in shown else None},
                },
            }
        ]
        if others
        else []
    )
    return base(
        *behind,
        {
            "data": {"values": first},
            "mark": {"type": "line", "color": VERMILLION, "interpolate": corner, "opacity": 0.6},
            "encoding": {"x": x, "y": y},
        },
        {
            "data": {"values": first},
            "mark": {**BEST_MARK, "size": 90},
            "encoding": {"x": x, "y": y, "tooltip": hover},
        },
        height=360,
    )
