"""The parameters of a Hydra sweeper: ``params``, as all of them put them together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.hydra_text import Call, read_value
from sweep.studyfile.starter.draft import Draft
from sweep.studyfile.starter.hydra_app import find_folders
from sweep.studyfile.starter.hydra_interpolation import is_open
from sweep.studyfile.starter.hydra_sweeps import convert_sweep, has_sweep


def whole(given: Mapping[str, Any], key: str, default: int | None, lost: list[str]) -> Any:
    """Return a whole number above 0 of a section, or the default where it is none."""
    value = given.get(key)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**7:
        return value
    if value is not None:
        what = "is not in this file" if is_open(value) else "is no whole number above 0"
        lost.append(f"{key}: {value} {what}" + (f"; it is {default} here" if default else ""))
    return default


def add_parameters(draft: Draft, params: Any, kind: str, path: Path, lost: list[str]) -> None:
    """Add all entries of ``params``: what varies to the space, other values to the fixed ones."""
    if params is None:
        return
    if not isinstance(params, Mapping):
        lost.append(f"params: is not a mapping of names to values (got {params!r})")
        return
    for name, value in params.items():
        add_parameter(draft, str(name), value, kind, path, lost)


def add_parameter(
    draft: Draft, name: str, given: Any, kind: str, path: Path, lost: list[str]
) -> None:
    """Add one entry of ``params``."""
    if isinstance(given, Mapping):
        lost.append(
            f"params.{name}: is a mapping, which Hydra's sweepers do not read; write {name}.KEY"
        )
        return
    # The sweepers put it together as name=value, and read that.
    text = given if isinstance(given, str) else str(given)
    if is_open(given):
        lost.append(f"params.{name}: {text} is not in this file")
        return
    if name.startswith("~"):
        draft.command.insert(2, name)
        return
    try:
        value = read_value(text)
        if not isinstance(value, Call) and has_sweep(value):
            raise ValueError("a value holds a sweep, which Hydra does not take apart")
        if isinstance(value, Call):
            draft.space[name] = convert_sweep(name, value, kind, find_folders(path), lost)
        else:
            draft.fixed[name] = value
            if given is None:
                lost.append(f"params.{name}: null arrives as the text None, as it does in Hydra")
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        why = "is nested too deep" if isinstance(error, RecursionError) else error
        lost.append(f"params.{name}: {why} (got {text!r})")
