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
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sweep.core.cells import guarded
from sweep.core.errors import InputError, closest
from sweep.core.files import write_output
from sweep.core.json_text import finite
from sweep.core.study import Study
from sweep.results.columns import MISSING, Column, Row, cell, columns

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
) -> str | bytes:
    """Return rows in one of FORMATS: bytes for Parquet, text for the rest.

    Args:
        digits: Significant digits in Markdown and LaTeX; all when None. A table has 6.
        shape: Gives the rows' columns: ``columns`` for trials, ``long_columns`` for steps.

    Raises:
        InputError: The format is unknown, or needs something that is not installed.
    """
    if format == "json":
        return json.dumps(finite(rows), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if format == "csv":
        return _csv(rows, shape(rows, study, text_only=True))
    if format == "parquet":
        return _parquet(rows, shape(rows, study))
    if format == "markdown":
        return _markdown(*_grid(rows, shape(rows, study), digits))
    if format == "latex":
        return _latex(*_grid(rows, shape(rows, study), digits))
    if format == "table":
        return _table(*_grid(rows, shape(rows, study), digits or TABLE_DIGITS))
    raise unknown_format(format)


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


def _grid(
    rows: Sequence[Row], wide: Sequence[Column], digits: int | None
) -> tuple[list[str], list[bool], list[list[str]]]:
    """Return headings, whether each column is of numbers, and cells, for people to read.

    Only what is read: no reasons where there are none, no times, and parameters by their own name.
    """
    taken = {column.name for column in wide}
    kept = []
    for column in wide:
        if column.name in ("started", "ended", "logged", "checkpoint"):
            continue
        if column.name in ("reason", "gpu_hours", "energy_j") and not any(map(column.read, rows)):
            continue
        kept.append(column)
    names = [column.name.partition(".")[2] or column.name for column in kept]
    headings = [
        column.name if name in taken or names.count(name) > 1 else name
        for column, name in zip(kept, names, strict=True)
    ]
    numeric = [column.kind in ("int", "float") for column in kept]
    return headings, numeric, [[cell(column, row, digits) for column in kept] for row in rows]


def _markdown(headings: list[str], numeric: list[bool], cells: list[list[str]]) -> str:
    heading, *lines = [[markdown_escape(text) for text in line] for line in [headings, *cells]]
    lines = [heading, ["---:" if number else ":---" for number in numeric], *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
}


def latex_escape(text: str) -> str:
    """Return text that LaTeX (with T1 fonts) prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex(headings: list[str], numeric: list[bool], cells: list[list[str]]) -> str:
    align = "".join("r" if number else "l" for number in numeric)
    lines = [" & ".join(map(latex_escape, line)) + r" \\" for line in [headings, *cells]]
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


def _table(headings: list[str], numeric: list[bool], cells: list[list[str]]) -> str:
    shown = [[" ".join(text.split()) for text in line] for line in [headings, *cells]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return "".join(
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, numeric, strict=True)
        ).rstrip()
        + "\n"
        for line in shown
    )
