"""Charts of what the slots did, and of what failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sweep.results.page.accounts import NodeFailures
from sweep.results.page.charts import BLUE, GREY, ORANGE, PURPLE, VERMILLION, Spec, base, tip
from sweep.results.page.lanes import (
    FAILED,
    INTERRUPTED,
    KINDS,
    PRUNED,
    RUNS,
    TRAINED,
    WAITED,
    short_hosts,
)
from sweep.results.page.views import View

COLOURS = {
    TRAINED: BLUE,
    PRUNED: "#9CC9EC",
    INTERRUPTED: ORANGE,
    FAILED: VERMILLION,
    RUNS: PURPLE,
    WAITED: GREY,
}


def _format(view: View) -> str:
    """Return how times are written, so that a study's are told apart."""
    begin = min(datetime.fromisoformat(cell["start"]) for cell in view.cells)
    end = max(datetime.fromisoformat(cell["end"]) for cell in view.cells)
    if end - begin < timedelta(minutes=10):
        return "%H:%M:%S"
    return "%H:%M" if end - begin < timedelta(days=1) else "%b %d %H:%M"


def timeline(view: View) -> Spec:
    """Return one row a slot and one bar an attempt; waiting is a thin bar."""
    lanes = max(1, view.shown)
    step = max(5, min(24, 900 // lanes))
    present = [kind for kind in KINDS if any(cell["kind"] == kind for cell in view.cells)]
    y = {
        "field": "lane",
        "type": "nominal",
        "title": None,
        "sort": "ascending",
        "axis": {"labels": lanes <= 40, "ticks": False, "labelLimit": 120},
    }
    x = {
        "field": "start",
        "type": "temporal",
        "title": "UTC",
        "scale": {"type": "utc"},
        "axis": {
            "labelOverlap": "greedy",
            "labelSeparation": 14,
            "tickCount": {"expr": "max(2, floor(width / 120))"},
            "labelFlush": False,
            "format": _format(view),
        },
    }
    colour = {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "scale": {"domain": present, "range": [COLOURS[kind] for kind in present]},
        "legend": {"columns": 2},
    }
    hover = tip(
        ("kind", "it"),
        ("trial", "trial"),
        ("attempt", "attempt"),
        ("node", "node"),
        ("took", "took"),
    )
    encoding = {"x": x, "x2": {"field": "end"}, "y": y, "color": colour, "tooltip": hover}
    waits = [cell for cell in view.cells if cell["kind"] == WAITED]
    works = [cell for cell in view.cells if cell["kind"] != WAITED]
    layers = [
        {
            "data": {"values": cells},
            "mark": {"type": "bar", "height": {"band": band}},
            "encoding": encoding,
        }
        for cells, band in ((waits, 0.25), (works, 0.86))
        if cells
    ]
    return base(*layers, height=max(60, step * lanes + 10))


def failures(found: Sequence[NodeFailures]) -> Spec:
    """Return how many attempts ended badly, by outcome and node."""
    names = short_hosts({f.host for f in found})
    cells = [
        {"outcome": f.outcome, "node": names[f.host], "count": f.count, "example": f.example}
        for f in found
    ]
    outcomes = list(dict.fromkeys(f.outcome for f in found))
    return base(
        {
            "mark": "bar",
            "encoding": {
                "y": {
                    "field": "outcome",
                    "type": "nominal",
                    "title": None,
                    "sort": outcomes,
                    "axis": {"labelLimit": 140},
                },
                "x": {
                    "field": "count",
                    "type": "quantitative",
                    "title": "attempts",
                    "axis": {"tickMinStep": 1, "format": "d"},
                    "aggregate": "sum",
                },
                "color": {
                    "field": "node",
                    "type": "nominal",
                    "title": "node",
                    "scale": {"scheme": "tableau10"},
                    "legend": {"columns": {"expr": "width < 420 ? 1 : 3"}},
                },
                "tooltip": [
                    *tip(("outcome", "outcome"), ("node", "node")),
                    {"field": "count", "aggregate": "sum", "title": "attempts"},
                ],
            },
        },
        height=24 + 26 * len(outcomes),
        data={"values": cells},
    )
