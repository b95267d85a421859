"""Tables for papers: the columns that are asked for, few digits, the best marked, means with ±."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweep.core.errors import InputError, closest
from sweep.core.study import Objective, Study
from sweep.results.columns import MISSING, Column, Row, cell
from sweep.results.ranking import shown_for

GROUPS = ("params.", "values.", "metrics.", "confirmed.")
MEAN, LOW, HIGH = "confirmed.mean", "confirmed.low", "confirmed.high"
# Beyond these a number is written with an exponent.
_MOST_DIGITS_BEFORE = 6
_MOST_ZEROS_BEHIND = 4


@dataclass(frozen=True)
class AskedColumn:
    """A column that was asked for.

    Attributes:
        heading: As it was asked for; "" for the column's own.
    """

    column: Column
    heading: str = ""


def ask(wide: Sequence[Column], names: Sequence[str], study: Study) -> list[AskedColumn]:
    """Return the columns of these names, in their order.

    A name may lack its group (``lr`` for ``params.lr``), and the objective's metric is ``value``.

    Raises:
        InputError: There is no such column, or the name says two; or one is named twice.
    """
    by_name = {column.name: column for column in wide}
    found: list[AskedColumn] = []
    for name in names:
        heading = name
        if name in by_name:
            heading = "" if name.startswith(GROUPS) else name
            full = [name]
        elif not study.is_multi_objective and name == study.objective.metric:
            full = ["value"]
        else:
            full = [group + name for group in GROUPS if group + name in by_name]
            full = [one for one in full if one.startswith("values.")] or full
        if len(full) != 1:
            raise _unknown(name, full, by_name)
        if any(asked.column.name == full[0] for asked in found):
            raise InputError(f"--columns names {name} twice.", "Name it once.")
        found.append(AskedColumn(by_name[full[0]], heading))
    return found


def with_ranking(names: Sequence[str], by: Objective | None, study: Study) -> list[str]:
    """Return the columns that were asked for and, where it is none of them, the metric that the
    table is ranked by: nobody could see why its rows stand as they do."""
    also = shown_for(by, study)
    if not names or also is None or {also.label, f"metrics.{also.label}"} & set(names):
        return list(names)
    return [*names, f"metrics.{also.label}"]


def _unknown(name: str, several: Sequence[str], known: Collection[str]) -> InputError:
    if several:
        return InputError(
            f"--columns: {name} may be {' or '.join(several)}.", "Write which, with its group."
        )
    short = {one.partition(".")[2] if one.startswith(GROUPS) else one: one for one in known}
    near = closest(name, [*known, *short])
    meant = f" Did you mean {near}?" if near else ""
    return InputError(
        f"--columns: there is no column {name!r}.{meant}", f"There are: {', '.join(known)}."
    )


def texts(
    column: Column,
    rows: Sequence[Row],
    digits: int | None,
    *,
    lined_up: bool = True,
    with_sd: bool = False,
) -> list[str]:
    """Return a column's cells.

    Args:
        with_sd: Whether the value of a trial of several trainings, which is their mean, has their
            standard deviation behind it.
        lined_up: With ``digits`` results have all as many decimals as the greatest needs for so
            many significant digits. A parameter's values and times have their own.
    """
    if column.name == MEAN:
        return means(rows, digits)
    if column.name == "value" and with_sd:
        values = [row["value"] for row in rows]
        return _spread(values, [row.get("sd") for row in rows], digits, lined_up=lined_up)
    if column.name.startswith("values.") and with_sd:
        metric = column.name.removeprefix("values.")
        spreads = [row.get("sds", {}).get(metric) for row in rows]
        values = [column.read(row) for row in rows]
        return _spread(values, spreads, digits, lined_up=lined_up)
    places = None
    is_result = column.name == "value" or column.name.startswith(("values.", "metrics."))
    if digits is not None and lined_up and is_result:
        places = decimals([column.read(row) for row in rows], digits)
    if places is None:
        return [cell(column, row, digits) for row in rows]
    return [_fixed(column.read(row), places) for row in rows]


def decimals(values: Sequence[Any], digits: int) -> int | None:
    """Return with how many decimals the greatest has so many digits; None where they cannot all be
    written so: they are very large, or the least of them would be nothing but zeros."""
    sizes = [abs(value) for value in values if value is not None and math.isfinite(value)]
    sizes = [size for size in sizes if size]
    if not sizes:
        return None
    before = [math.floor(math.log10(size)) + 1 for size in sizes]
    places = max(0, digits - max(before))
    if max(before) > _MOST_DIGITS_BEFORE or max(before) < -_MOST_ZEROS_BEHIND:
        return None
    return None if round(min(sizes), places) == 0 else places


def _fixed(value: float | None, places: int) -> str:
    return "" if value is None else f"{value:.{places}f}"


def means(rows: Sequence[Row], digits: int | None) -> list[str]:
    """Return means of fresh seeds with half their intervals."""
    found = [row.get("confirmed") or {} for row in rows]
    halves = [None if one.get("low") is None else (one["high"] - one["low"]) / 2 for one in found]
    return _spread([one.get("mean") for one in found], halves, digits)


def _spread(
    values: Sequence[float | None],
    spreads: Sequence[float | None],
    digits: int | None,
    *,
    lined_up: bool = True,
) -> list[str]:
    """Return values with what they may be off by; that alone has another decimal where it would be
    nothing but zeros."""
    places = decimals(values, digits) if digits is not None and lined_up else None

    def text(value: float) -> str:
        if places is not None:
            return _fixed(value, places)
        return repr(float(value)) if digits is None else f"{value:.{digits}g}"

    cells = []
    for value, spread in zip(values, spreads, strict=True):
        if value is None or spread is None:
            cells.append("" if value is None else text(value))
        elif places is not None and spread and round(spread, places) == 0:
            cells.append(f"{text(value)} ± {spread:.1g}")
        else:
            cells.append(f"{text(value)} ± {text(spread)}")
    return cells


def best_cells(rows: Sequence[Row], study: Study, by: Objective | None) -> dict[str, set[int]]:
    """Return of each column with results which rows have the best of them, by the column's name.

    The objectives, the metric that ``by`` ranks by, and the means of fresh seeds. What breaks the
    study's constraints is none, and nor is a trial that is not complete.
    """
    asked: dict[str, tuple[str, list[float | None]]] = {}
    eligible = [row["rank"] is not None and row.get("feasible") is not False for row in rows]
    if study.is_multi_objective:
        for one in study.objectives:
            values = [row["values"].get(one.metric) for row in rows]
            asked[f"values.{one.metric}"] = (one.direction, values)
    else:
        asked["value"] = (study.objective.direction, [row["value"] for row in rows])
    if by is not None and (shown := shown_for(by, study)):
        values = [row.get("metrics", {}).get(shown.label) for row in rows]
        asked[f"metrics.{shown.label}"] = (by.direction, values)
    means = [(row.get("confirmed") or {}).get("mean") for row in rows]
    asked[MEAN] = (study.objective.direction, means)
    found = {}
    for name, (direction, values) in asked.items():
        good = [
            value if ok and value is not None and math.isfinite(value) else None
            for value, ok in zip(values, eligible, strict=True)
        ]
        there = [value for value in good if value is not None]
        if there:
            best = max(there) if direction == "maximize" else min(there)
            found[name] = {index for index, value in enumerate(good) if value == best}
    return found


def flat(rows: Sequence[Row], asked: Sequence[AskedColumn]) -> list[Mapping[str, Any]]:
    """Return the rows as objects of the columns that were asked for, for programs."""
    return [
        {(one.heading or one.column.name): _plain(one.column, row) for one in asked} for row in rows
    ]


def _plain(column: Column, row: Row) -> Any:
    value = column.read(row)
    return None if value is MISSING else value


def renamed(asked: Sequence[AskedColumn]) -> list[Column]:
    """Return the columns under the names by which they were asked for."""
    return [replace(one.column, name=one.heading or one.column.name) for one in asked]
