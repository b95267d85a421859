"""The columns of rows in their wide form, and how a cell becomes text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.cells import kind_of, write_cell
from sweep.core.space import Parameter
from sweep.core.study import Study

Row = Mapping[str, Any]
MISSING = object()  # the trial does not have this value; None may be a choice


@dataclass(frozen=True)
class Column:
    """One column of a wide table.

    Attributes:
        name: Its heading: a key of the row, ``params.<name>``, ``values.<metric>``,
            ``metrics.<metric>`` or ``confirmed.<what>``.
        kind: int, float, bool, text, time, or json (anything, told apart by its JSON text).
        read: Gives a row's value; None where there is none, and ``MISSING`` in a json column.
    """

    name: str
    kind: str
    read: Callable[[Row], Any]
    missing: object = MISSING


def columns(rows: Sequence[Row], study: Study, *, text_only: bool = False) -> list[Column]:
    """Return the columns of the wide form, in reading order.

    Args:
        text_only: The format stores text alone (CSV), so strings that look like something else
            make their column a json one.
    """
    found = [_key("rank", "int"), _key("trial", "int"), _key("state", "text")]
    if study.is_multi_objective:
        found += [_inner("values", o.metric, "float") for o in study.objectives]
    else:
        found.append(_key("value", "float"))
    if study.is_replicated:
        several = study.objectives if study.is_multi_objective else ()
        found += [_key("sd", "float"), *(_inner("sds", o.metric, "float") for o in several)]
        found.append(_key("replicates", "int"))
    if study.constraints:
        found.append(_key("feasible", "bool"))
    found += [
        _inner("params", name, _kind(name, rows, study, text_only))
        for name in _names("params", rows, study.space.names())
    ]
    found += [_inner("metrics", name, "float") for name in _names("metrics", rows)]
    found += [_key("seed", "int"), _key("attempts", "int"), _key("duration_s", "float")]
    found += [_key("gpu_hours", "float"), _key("energy_j", "float")]
    found += [_key("reason", "text"), _key("started", "time"), _key("ended", "time")]
    if any("confirmed" in row for row in rows):
        found += [_inner("confirmed", name, "float") for name in ("mean", "low", "high")]
        found.append(_inner("confirmed", "seeds", "int"))
    if any("retried" in row for row in rows):
        found.append(_key("retried", "int"))
    if any("code" in row for row in rows):
        found.append(_key("code", "text"))
    if any("checkpoint" in row for row in rows):
        found.append(_key("checkpoint", "text"))
    return found


def long_columns(rows: Sequence[Row], study: Study, *, text_only: bool = False) -> list[Column]:
    """Return the columns of the long form: one row for each value that a trial reported."""
    names = [row["metric"] for row in rows]
    kind = kind_of(sorted(set(names)), text_only)
    return [
        _key("trial", "int"),
        _key("attempt", "int"),
        _key("step", "int"),
        _key("metric", kind if names else "text"),
        _key("value", "float"),
        _key("logged", "time"),
    ]


def _key(name: str, kind: str) -> Column:
    return Column(name, kind, lambda row: row.get(name))


def _inner(group: str, name: str, kind: str) -> Column:
    missing = MISSING if kind == "json" else None
    return Column(f"{group}.{name}", kind, lambda row: row.get(group, {}).get(name, missing))


def _names(group: str, rows: Iterable[Row], declared: Sequence[str] = ()) -> list[str]:
    seen = dict.fromkeys(name for row in rows for name in row.get(group, {}))
    return [*declared, *sorted(name for name in seen if name not in declared)]


def _kind(name: str, rows: Sequence[Row], study: Study, text_only: bool) -> str:
    try:
        parameter: Parameter | None = study.space.get(name)
    except KeyError:
        parameter = None  # a notebook's own
    if parameter is not None and parameter.type == "float":
        return "float"
    if parameter is not None and parameter.type == "int":
        values: Sequence[Any] = (parameter.low, parameter.high)
    elif parameter is not None:
        values = parameter.choices
    else:
        values = [row["params"][name] for row in rows if name in row["params"]]
    return kind_of(values, text_only)


def cell(column: Column, row: Row, digits: int | None = None) -> str:
    """Return a row's value as text: all digits of a number, unless told how many."""
    value = column.read(row)
    if value is MISSING or (value is None and column.kind != "json"):
        return ""
    return write_cell(column.kind, value, digits)
