"""The report as one HTML file: text from the template, charts as data, Vega inlined once."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from sweep.core import templates
from sweep.core.errors import InputError
from sweep.core.files import make_private, write_atomic, write_output
from sweep.core.json_text import finite
from sweep.core.times import span
from sweep.results.cost_text import duration
from sweep.results.page.charts import Chart
from sweep.results.page.contents import Contents
from sweep.results.page.theme import DARK, LIGHT
from sweep.results.page.views import text_of

TEMPLATE = "report.html.j2"
LIST_TEMPLATE, WAIT_TEMPLATE = "studies.html.j2", "wait.html.j2"
ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("charts.js", "parallel.js", "trials.js", "follow.js", "start.js")  # in this order
PARTS = ("now", "rest")
OWN_CHART = "parallel"  # drawn by the page's own script; with Vega-Lite only as a picture
VEGA_LITE = "6.4"  # what charts are written for
INSTALL = "pip install 'sweep-hpo[report]'"


@dataclass(frozen=True)
class Served:
    """What a page knows of the server that it comes from.

    Attributes:
        setup: Its addresses and the version of what it shows, as JSON.
        problem: What is wrong at present, in words.
        list: Whether there is a page of all studies.
    """

    setup: str
    problem: str = ""
    list: bool = False
    scripts: Sequence[str] = ("vega.js", *SCRIPTS)


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


def _template(name: str = TEMPLATE) -> Template:
    environment = Environment(
        loader=FileSystemLoader([str(folder) for _, folder in templates.folders(None)]),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "hours": duration,
        "choice": text_of,
        "number": _number,
        "brief": _brief,
        "keyed": _keyed,
        "span": lambda seconds: span(seconds, rough=True),
        "urlencode": quote_plus,
    }
    return environment.get_template(name)


def _variables(contents: Contents, served: Served | None) -> dict[str, Any]:
    return {
        "contents": contents,
        "study": contents.source.study,
        "best": contents.source.best,
        "made": contents.source.made,
        "charts": contents.charts,
        "zipped": zip,
        "served": served,
    }


def specs_of(contents: Contents) -> dict[str, Any]:
    """Return the charts that the page draws with Vega-Lite, by key."""
    running = contents.current.chart() if contents.current is not None else None
    charts = [*contents.charts, *([running] if running is not None else [])]
    return {chart.key: chart.spec for chart in charts if chart.key != OWN_CHART}


def parts(contents: Contents, served: Served, names: Sequence[str] = PARTS) -> dict[str, str]:
    """Return parts of the page, which a page that is open puts in the place of its own."""
    template = _template()
    context = template.new_context(_variables(contents, served))
    return {name: "".join(template.blocks[name](context)) for name in names}


def render(contents: Contents, vega: str, served: Served | None = None) -> str:
    """Return the page.

    Args:
        vega: The script that defines ``vegaEmbed``; of no use to a page that is served.
        served: How the page that is served finds its server; None of one that stands by itself.
    """
    texts = [] if served else [vega.replace("</script", "<\\/script"), *map(asset, SCRIPTS)]
    return _template().render(
        **_variables(contents, served),
        css=asset("page.css"),
        scripts=texts,
        hashes=" ".join(f"'sha256-{_digest(text)}'" for text in texts),
        themes=as_script({"light": LIGHT, "dark": DARK}),
        specs=as_script(specs_of(contents)),
        trials=as_script(contents.columns),
    )


def list_parts(studies: Sequence[Any], known: Collection[str]) -> dict[str, str]:
    """Return the list of studies, which stands on a page of its own.

    Args:
        studies: As ``sweep list`` has them.
        known: Those that have a page here.
    """
    template = _template(LIST_TEMPLATE)
    context = template.new_context({"studies": studies, "known": known, "now_s": time.time()})
    return {"studies": "".join(template.blocks["studies"](context))}


def render_list(studies: Sequence[Any], known: Collection[str], served: Served) -> str:
    """Return the page of all studies; Args as ``list_parts``."""
    return _template(LIST_TEMPLATE).render(
        studies=studies, known=known, now_s=time.time(), served=served
    )


def render_wait(name: str, served: Served) -> str:
    """Return the page that is shown while nothing of a study could be read yet."""
    return _template(WAIT_TEMPLATE).render(name=name, served=served)


def asset(name: str) -> str:
    """Return the text of one of the page's own files."""
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return what the page's policy says of a script that may run."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


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
