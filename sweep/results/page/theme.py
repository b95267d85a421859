"""How charts look on white and on black."""

from __future__ import annotations

from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Roboto, sans-serif"


def _theme(text: str, grid: str) -> dict[str, Any]:
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": text,
            "titleColor": text,
            "gridColor": grid,
            "domainColor": grid,
            "tickColor": grid,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titlePadding": 8,
        },
        "legend": {
            "orient": "bottom",
            "labelColor": text,
            "titleColor": text,
            "labelFontSize": 12,
            "titleFontWeight": "normal",
            "symbolStrokeWidth": 2,
        },
        "title": {"color": text},
        "text": {"color": text, "fontSize": 12},
    }


LIGHT = _theme("#333a44", "#e3e6ea")
DARK = _theme("#c9d1d9", "#343b45")
