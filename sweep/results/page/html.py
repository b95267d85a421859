"""The report as one HTML file: text from the template, charts as data, Vega inlined once."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sweep.core import templates
from sweep.core.errors import InputError
from sweep.core.files import make_private, write_atomic, write_output
from sweep.core.json_text import finite
from sweep.results.page.charts import Chart
from sweep.results.page.contents import Contents
from sweep.results.page.theme import DARK, LIGHT
from sweep.results.page.tiles import duration, gpu_text
from sweep.results.page.views import text_of

TEMPLATE = "report.html.j2"
VEGA_LITE = "6.4"  # what charts are written for
INSTALL = "pip install 'sweep-hpo[report]'"


def drawing() -> Any:
    """Return the module that brings Vega: its JavaScript, and pictures made with it.

    Raises:
        InputError: It is not installed; what to do.
    """
    try:
        import vl_convert
    except ImportError:
        raise InputError("sweep report needs vl-convert-python.", INSTALL) from None
    return vl_convert


def cache_folder() -> Path:
    """Return where a user's programs keep what they can make again."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)).absolute() / "sweep"


def script(cache: Path) -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script.

    Putting them together takes seconds, so the result is kept where there is room.

    Args:
        cache: Folder to keep it in.
    """
    library = drawing()
    path = cache / f"vega-lite-{VEGA_LITE}-{library.__version__}.js"
    if path.is_file() and path.stat().st_uid == os.geteuid():
        return path.read_text(encoding="utf-8")
    text = str(library.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE))
    with contextlib.suppress(OSError, InputError):
        write_atomic(make_private(cache) / path.name, text)
    return text


def render(contents: Contents, vega: str) -> str:
    """Return the page.

    Args:
        vega: The script that defines ``vegaEmbed``.
    """
    environment = Environment(
        loader=FileSystemLoader([str(folder) for _, folder in templates.folders(None)]),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "hours": duration,
        "gpu_hours": gpu_text,
        "choice": text_of,
        "number": _number,
        "brief": _brief,
        "keyed": _keyed,
    }
    return environment.get_template(TEMPLATE).render(
        contents=contents,
        study=contents.source.study,
        best=contents.source.best,
        made=contents.source.made,
        charts=contents.charts,
        zipped=zip,
        themes=as_script({"light": LIGHT, "dark": DARK}),
        specs=as_script({chart.key: chart.spec for chart in contents.charts}),
        vega=vega.replace("</script", "<\\/script"),
    )


def as_script(data: Any) -> str:
    """Return data as JSON that may stand inside a script element, whatever texts it holds."""
    text = json.dumps(finite(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else text_of(value)


def _keyed(charts: Sequence[Chart], *begins: str) -> list[Chart]:
    """Return the charts whose names begin so, in that order."""
    return [chart for begin in begins for chart in charts if chart.key.partition("-")[0] == begin]


def write(contents: Contents, path: Path, cache: Path, *, chosen: bool = True) -> None:
    """Write the page to a file, whole or not at all.

    Args:
        chosen: The user has chosen the place; else it is ours.

    Raises:
        InputError: The drawing library is missing, or the file cannot be written.
    """
    text = render(contents, script(cache))
    if chosen:
        write_output(path, text)
        return
    try:
        write_atomic(path, text)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}.", "Give another file: -o FILE."
        ) from error
