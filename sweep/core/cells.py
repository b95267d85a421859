"""A cell of a CSV file: how a value becomes text there, and which value a text is.

Both sides of one thing, so that what ``sweep collect`` writes is what ``points`` reads: the same
values, of the same types. A column of plain text holds only texts that are nothing else; where a
choice could be taken for another kind of value, every cell of its column is JSON text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from sweep.core.space import Parameter, same_value

PARAMS = "params."  # before a parameter's name in the heading of its column
OPTUNAS_PARAMS = "params_"  # the same in Optuna's ``trials_dataframe``

# Headings of our exports (``columns``, ``long_columns``) and of Optuna's frame that name no
# parameter, even where a parameter is called the same.
BOOKKEEPING = frozenset(
    [
        "rank",
        "trial",
        "state",
        "value",
        "feasible",
        "code",
        "seed",
        "attempts",
        "duration_s",
        "gpu_hours",
        "energy_j",
        "reason",
        "started",
        "ended",
        "checkpoint",
        "attempt",
        "step",
        "metric",
        "logged",
    ]
)
_OPTUNAS = frozenset(
    ["number", "value", "state", "datetime_start", "datetime_complete", "duration"]
)
_GROUPS = re.compile(
    r"(params|values|metrics|confirmed)\.|(params|values|user_attrs|system_attrs)_"
)
# What is never missing from such a file; a file of one's own hardly has both.
_MARKS = ({"trial", "state"}, {"trial", "metric"}, {"number", "state"})

# What readers of CSV (pandas among them) take for a gap or a truth value.
_NOT_TEXT = re.compile(
    r"|[+-]?(inf|infinity|nan|1\.#ind|1\.#qnan)|#?n/?a|#n/a n/a|<na>|null|none|true|false", re.I
)
_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # a spreadsheet computes it; the apostrophes are guards
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def parameter_columns(header: Collection[str], names: Sequence[str]) -> dict[str, str]:
    """Return in which column of a CSV file each parameter stands, where it has one.

    In an export a parameter is ``params.<name>``. A plain heading counts as well (a column that
    somebody added by hand), but not where it is one of an export's own: ``value`` is the objective
    there. In a file of one's own every plain name is a parameter's.
    """
    is_export = _is_export(header, names)
    found = {}
    for name in names:
        plain = name
        if is_export and (name in BOOKKEEPING | _OPTUNAS or _GROUPS.match(name)):
            plain = ""
        for heading in (PARAMS + name, OPTUNAS_PARAMS + name, plain):
            if heading and heading in header:
                found[name] = heading
                break
    return found


def _is_export(header: Collection[str], names: Sequence[str]) -> bool:
    if set(header) <= set(names):
        return False
    named = [heading for heading in header if heading not in names]
    return any(heading.startswith((PARAMS, OPTUNAS_PARAMS)) for heading in named) or any(
        marks <= set(header) for marks in _MARKS
    )


def kind_of(values: Sequence[Any], text_only: bool = False) -> str:
    """Return the kind of a column that may hold these values: int, float, bool, text or json.

    Args:
        text_only: The format stores text alone (CSV), so strings that look like something else
            make their column a json one.
    """
    types = {type(value) for value in values}
    if types == {bool}:
        return "bool"
    if types == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return "int"
    if types == {float}:
        return "float"
    if types == {str} and not (text_only and any(is_ambiguous(value) for value in values)):
        return "text"
    return "json"


def is_ambiguous(text: str) -> bool:
    """Tell whether a reader of CSV, or a spreadsheet, may take a string for something else."""
    if text != text.strip() or _NOT_TEXT.fullmatch(text):
        return True
    if _FORMULA.match(text) or _CONTROLS.search(text) or text[0] in '"[{':
        return True
    try:
        complex(text.replace(",", ""))
    except ValueError:
        return False
    return True


def write_cell(kind: str, value: Any, digits: int | None = None) -> str:
    """Return a value as the text of a cell; a number with all digits, unless told how many."""
    if kind == "json":
        return json.dumps(value, ensure_ascii=False)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "float":
        return repr(float(value)) if digits is None else f"{value:.{digits}g}"
    return str(value)


def guarded(text: str) -> str:
    """Return free text so that a spreadsheet does not compute it: behind an apostrophe."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """Return what ``guarded`` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def read_cell(text: str, parameter: Parameter) -> Any:
    """Return the parameter's value that a cell stands for; the text where it is none of them.

    A choice is the one whose JSON the cell is; else, in files of other origin, the one that is
    equal to it, or that has this text. Apostrophes before a formula's sign may be a guard.
    """
    if parameter.type != "categorical":
        try:
            value = float(unguarded(text))
        except ValueError:
            return text
        return int(value) if parameter.type == "int" and value.is_integer() else value
    for candidate in dict.fromkeys((text, unguarded(text))):
        for choice in _choices_of(candidate, parameter.choices):
            return choice
    return text


def _choices_of(text: str, choices: Sequence[Any]) -> list[Any]:
    """Return the choices that a text can mean, the likeliest first."""
    meant = []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        exact = json.dumps(value)
        meant += [choice for choice in choices if json.dumps(choice) == exact]
        meant += [choice for choice in choices if same_value(choice, value)]
    meant += [choice for choice in choices if choice == text]
    words = {"true": True, "false": False, "none": None}  # as Python and spreadsheets write them
    if text.lower() in words:
        meant += [choice for choice in choices if choice is words[text.lower()]]
    return meant
