"""Charts of one training that was looked at: its GPUs, its CPUs, its memory and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.results.page.charts import Chart, Spec, base, tip

# Key of the chart, its title, its axis with a format, and of each column the name and a factor.
_GIB = 2.0**-30
_MB = 1e-6
_CHARTS: Sequence[tuple[str, str, str, str, Mapping[str, tuple[str, float]]]] = (
    (
        "devices",
        "GPUs and files over time",
        "share",
        "%",
        {
            "gpu_busy": ("GPU busy", 1.0),
            "gpu_memory": ("GPU memory", 1.0),
            "gpu_power": ("GPU power", 1.0),
            "files": ("waits for files", 1.0),
        },
    ),
    ("cpus", "CPUs over time", "CPUs at work", "~g", {"cpu_cores": ("CPUs", 1.0)}),
    ("memory", "Memory over time", "GiB", "~g", {"rss_bytes": ("its processes", _GIB)}),
    (
        "traffic",
        "Reading and writing over time",
        "MB a second",
        "~g",
        {"read_bytes_s": ("read", _MB), "written_bytes_s": ("written", _MB)},
    ),
)


def course(whose: str, columns: Mapping[str, Sequence[Any]], part: str = "profile") -> list[Chart]:
    """Return the charts of a training's course; none of what was not seen of it.

    Args:
        whose: Which training it is, in words.
        columns: ``s`` (seconds from its first look) and the columns beside it, as they are kept.
        part: Begins the charts' keys.
    """
    found = []
    for key, title, axis, form, wanted in _CHARTS:
        cells = [
            {"s": second, "what": name, "value": value * factor}
            for column, (name, factor) in wanted.items()
            for second, value in zip(columns.get("s", ()), columns.get(column, ()), strict=False)
            if isinstance(value, int | float) and isinstance(second, int | float)
        ]
        if key == "devices" and not columns.get("files"):
            title = "GPUs over time"
        if cells:
            alt = f"{title}, {whose}"
            found.append(
                Chart(f"{part}-{key}", title, _lines(cells, axis, form), f"Of {whose}.", alt, True)
            )
    return found


def _lines(cells: Sequence[Mapping[str, Any]], axis: str, form: str) -> Spec:
    names = list(dict.fromkeys(cell["what"] for cell in cells))
    several = len(names) > 1
    return base(
        {
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {
                "x": {
                    "field": "s",
                    "type": "quantitative",
                    "title": "seconds from its start",
                    "scale": {"nice": False},
                },
                "y": {
                    "field": "value",
                    "type": "quantitative",
                    "title": axis if several else f"{axis}: {names[0]}",
                    "axis": {"format": form},
                    **({"scale": {"domain": [0, 1]}} if form == "%" else {}),
                },
                "color": {
                    "field": "what",
                    "type": "nominal",
                    "title": None,
                    "sort": None,
                    "scale": {"scheme": "tableau10"},
                    "legend": {"columns": 2} if several else None,
                },
                "tooltip": tip(("what", "it"), ("s", "second"), ("value", axis)),
            },
        },
        height=180,
        data={"values": list(cells)},
    )
