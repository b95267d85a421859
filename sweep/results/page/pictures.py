"""The report's charts as PNG or SVG files, by the library that draws them in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.files import write_output
from sweep.results.page.charts import Chart
from sweep.results.page.html import VEGA_LITE, as_script, drawing
from sweep.results.page.theme import LIGHT

WIDTH, SMALL_WIDTH = 760, 420  # pixels, before the scale
SCALE = 2.0  # of PNG: sharp in print
FORMATS = ("png", "svg")


def draw(charts: list[Chart], folder: Path, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Write each chart into a folder, and return the files.

    Raises:
        InputError: The drawing library is missing, or the folder cannot be written to.
    """
    library = drawing()
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            spec = as_script(_sized(chart))
            for format in formats:
                path = folder / f"{chart.key}.{format}"
                write_output(path, _draw(library, spec, format), "Give another: --figures DIR.")
                written.append(path)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written to: {error.strerror}.", "Give another: --figures DIR."
        ) from error
    return written


def _sized(chart: Chart) -> dict[str, Any]:
    title = {"text": chart.title, "anchor": "start", "fontSize": 15, "offset": 12}
    width = SMALL_WIDTH if chart.small else WIDTH
    return {**chart.spec, "width": width, "title": title, "background": "white", "config": LIGHT}


def _draw(library: Any, spec: str, format: str) -> str | bytes:
    if format == "svg":
        return str(library.vegalite_to_svg(spec, vl_version=VEGA_LITE))
    return bytes(library.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=SCALE))
