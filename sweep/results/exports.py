"""Rows as JSON, CSV, Parquet, Markdown, LaTeX or a plain table; and into a file.

Numbers keep all their digits (``repr``), so that reading a file back gives equal values. A column
whose values one cannot tell from the text alone (choices that are lists, null, of mixed kinds, or
strings such as "1" and "null", or that a spreadsheet would compute) holds JSON text in every cell
(``core.cells``); an empty cell means that the trial does not have the value. Free text that starts
like a formula (a reason) has an apostrophe before it. pandas takes JSON's null for a gap too unless
it is told otherwise: ``read_csv(file, keep_default_na=False, na_values=[""])``; before version 3 it
also needs
``float_precision="round_trip"``. JSON has no word for infinity and not-a-number: there they are
null.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sweep.core.cells import guarded
from sweep.core.errors import InputError, closest
from sweep.core.files import write_output
from sweep.core.json_text import finite
from sweep.core.study import Study
from sweep.results import paper
from sweep.results.columns import MISSING, Column, Row, cell, columns
from sweep.results.paper import AskedColumn

SUFFIXES = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".md": "markdown",
    ".markdown": "markdown",
    ".tex": "latex",
    ".txt": "table",
}
FORMATS = ("table", "json", "csv", "parquet", "markdown", "latex")
TABLE_DIGITS = 6


def export(
    rows: Sequence[Row],
    format: str,
    study: Study,
    *,
    digits: int | None = None,
    shape: Callable[..., list[Column]] = columns,
    names: Sequence[str] = (),
    best: Mapping[str, Collection[int]] = {},
) -> str | bytes:
    """Return rows in one of FORMATS: bytes for Parquet, text for the rest.

    Args:
        digits: Significant digits in Markdown and LaTeX; all when None. A table has 6.
        names: Of the columns to show, in this order; all when empty (see ``paper.ask``).
        best: Of a column, by its full name, the rows that Markdown and LaTeX print bold.
        shape: Gives the rows' columns: ``columns`` for trials, ``long_columns`` for steps.

    Raises:
        InputError: The format is unknown, or needs something that is not installed; or there is no
            column of such a name.
    """
    if format not in FORMATS:
        raise unknown_format(format)
    wide = shape(rows, study, text_only=format == "csv")
    asked = paper.ask(wide, names, study) if names else []
    if format == "json":
        data = paper.flat(rows, asked) if asked else rows
        return json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if format in ("csv", "parquet"):
        shown = paper.renamed(asked) if asked else wide
        return _csv(rows, shown) if format == "csv" else _parquet(rows, shown)
    lined_up = digits is not None
    if format == "table":
        digits = digits or TABLE_DIGITS
    shown_columns = asked or _said(rows, wide)
    # Where the deviation has no column of its own it stands behind the mean.
    with_sd = study.is_replicated and all(one.column.name != "sd" for one in shown_columns)
    cells = [
        paper.texts(one.column, rows, digits, lined_up=lined_up, with_sd=with_sd)
        for one in shown_columns
    ]
    grid = _grid(shown_columns, cells, best)
    return {"markdown": _markdown, "latex": _latex, "table": _table}[format](grid)


def unknown_format(word: str) -> InputError:
    near = closest(word, FORMATS)
    meant = f" Did you mean {near}?" if near else ""
    return InputError(f"There is no format {word!r}.{meant}", f"Formats: {', '.join(FORMATS)}.")


def format_of(path: Path | None, given: str | None) -> str:
    """Return the format to write: the given one, else by the file's suffix, else a table.

    Raises:
        InputError: The suffix says nothing and no format was given, or it is none of ours.
    """
    if given is not None:
        if given not in FORMATS:
            raise unknown_format(given)
        return given
    if path is None or str(path) == "-":
        return "table"
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    raise InputError(
        f"{path}: its ending does not say which format to write.",
        f"Use one of {', '.join(SUFFIXES)}, or --format.",
    )


def write(data: str | bytes, path: Path | None, stdout: Any) -> None:
    """Write an export to a file, whole or not at all, or to standard output (None or "-").

    Args:
        stdout: A text stream, with ``buffer`` for bytes (sys.stdout).

    Raises:
        InputError: Bytes for a terminal, or a place that cannot be written to.
    """
    if path is None or str(path) == "-":
        if isinstance(data, str):
            stdout.write(data)
        elif stdout.isatty():
            raise InputError(
                "Parquet is binary: it would garble the terminal.", "Give a file: -o FILE.parquet"
            )
        else:
            stdout.buffer.write(data)
        stdout.flush()
        return
    write_output(path, data)


def _csv(rows: Sequence[Row], wide: Sequence[Column]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in wide])
    writer.writerows([_csv_cell(column, row) for column in wide] for row in rows)
    return out.getvalue()


def _csv_cell(column: Column, row: Row) -> str:
    text = cell(column, row)
    return guarded(text) if column.kind == "text" else text


def _parquet(rows: Sequence[Row], wide: Sequence[Column]) -> bytes:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet needs pyarrow, which is not installed.", "pip install 'sweep-hpo[report]'"
        ) from None
    types = {
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    arrays = {}
    for column in wide:
        values = [column.read(row) for row in rows]
        if column.kind == "json":
            values = [None if v is MISSING else json.dumps(v, ensure_ascii=False) for v in values]
        elif column.kind == "time":
            values = [datetime.fromisoformat(v) if v is not None else None for v in values]
        arrays[column.name] = pyarrow.array(values, types.get(column.kind, pyarrow.string()))
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), out)
    return out.getvalue()


@dataclass(frozen=True)
class Grid:
    """A table for people.

    Attributes:
        headings: One a column; numeric: whether it is of numbers.
        cells: Their texts, row by row.
        bold: (row, column) of the best ones.
    """

    headings: Sequence[str]
    numeric: Sequence[bool]
    cells: Sequence[Sequence[str]]
    bold: Collection[tuple[int, int]] = ()

    def written(
        self, escape: Callable[[str], str], bold: Callable[[str], str]
    ) -> tuple[list[str], list[list[str]]]:
        """Return headings and cells as a format has them."""
        lines = [
            [
                bold(escape(text)) if text and (row, place) in self.bold else escape(text)
                for place, text in enumerate(line)
            ]
            for row, line in enumerate(self.cells)
        ]
        return [escape(text) for text in self.headings], lines


def _said(rows: Sequence[Row], wide: Sequence[Column]) -> list[AskedColumn]:
    """Return the columns that people read: no reasons where there are none, no times."""
    kept = []
    for column in wide:
        if column.name in ("started", "ended", "logged", "checkpoint", paper.LOW, paper.HIGH):
            continue
        if column.name in ("reason", "gpu_hours", "energy_j") and not any(map(column.read, rows)):
            continue
        kept.append(AskedColumn(column))
    return kept


def _grid(
    asked: Sequence[AskedColumn],
    cells: Sequence[Sequence[str]],
    best: Mapping[str, Collection[int]],
) -> Grid:
    """Return a table for people; parameters by their own name where that says one column.

    Args:
        cells: Texts, column by column.
    """
    wide = [one.column for one in asked]
    taken = {one.heading or one.column.name for one in asked}
    short = [
        name if name.startswith("sds.") else name.partition(".")[2] or name
        for name in (column.name for column in wide)
    ]
    headings = [
        one.heading or (one.column.name if name in taken or short.count(name) > 1 else name)
        for one, name in zip(asked, short, strict=True)
    ]
    return Grid(
        headings,
        [column.kind in ("int", "float") for column in wide],
        [list(line) for line in zip(*cells, strict=True)],
        {(row, place) for place, c in enumerate(wide) for row in best.get(c.name, ())},
    )


def _markdown(grid: Grid) -> str:
    heading, lines = grid.written(markdown_escape, lambda text: f"**{text}**")
    rule = ["---:" if number else ":---" for number in grid.numeric]
    return "".join(f"| {' | '.join(line)} |\n" for line in [heading, rule, *lines])


def markdown_escape(text: str) -> str:
    """Return text that Markdown shows as it is, within a table's cell."""
    text = re.sub(r"([\\`*_{}\[\]<>#|~&$])", r"\\\1", text)
    return re.sub(r"\r\n|\r|\n", "<br>", text)


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\n": r"\newline{}",
    "[": "{[}",
    "]": "{]}",
    "±": r"$\pm$",
}


def latex_escape(text: str) -> str:
    """Return text that LaTeX (with T1 fonts) prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex(grid: Grid) -> str:
    heading, cells = grid.written(latex_escape, lambda text: rf"\textbf{{{text}}}")
    align = "".join("r" if number else "l" for number in grid.numeric)
    lines = [" & ".join(line) + r" \\" for line in [heading, *cells]]
    return "\n".join(
        [
            r"% \usepackage[T1]{fontenc} \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _table(grid: Grid) -> str:
    shown = [[" ".join(text.split()) for text in line] for line in [grid.headings, *grid.cells]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return "".join(
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, grid.numeric, strict=True)
        ).rstrip()
        + "\n"
        for line in shown
    )
