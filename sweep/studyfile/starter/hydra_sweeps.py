"""Sweep expressions of Hydra's overrides as parameters, as each sweeper understands them.

Sources: hydra/core/override_parser and hydra/_internal/grammar (Hydra 1.3), and the sweepers' own
code. A range ends before its stop, but at it for Optuna's sweeper, whose grid ends one step before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from sweep.core.hydra_text import Call, read_value
from sweep.studyfile.starter.draft import fit_grid
from sweep.studyfile.starter.wandb_ranges import distinct

OPTUNA, OPTUNA_GRID, BASIC, NEVERGRAD, AX = "Optuna", "Optuna's grid", "basic", "Nevergrad", "Ax"
_MOST_VALUES = 10_000


def _as_int(value: Any) -> int:
    return int(value)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_bool(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{value!r} is neither true nor false")
        return value.lower() == "true"
    return bool(value)


_CASTS: dict[str, Callable[[Any], Any]] = {
    "int": _as_int,
    "float": float,
    "str": _as_text,
    "bool": _as_bool,
}
_Cast = Callable[[Any], Any]


def convert_sweep(name: str, call: Call, kind: str, folders: list[Path], lost: list[str]) -> Any:
    """Return a sweep expression as a parameter, as the study file holds it.

    Args:
        kind: The sweeper.
        folders: Where the options of a group may lie.

    Raises:
        ValueError, TypeError: It has no counterpart, or the sweeper refuses it.
    """
    if kind == OPTUNA_GRID and _is_continuous(call):
        raise ValueError("Optuna's grid takes no interval() of floats")
    return _convert(name, call, kind, folders, lost, frozenset(), None)


def _convert(
    name: str,
    call: Call,
    kind: str,
    folders: list[Path],
    lost: list[str],
    tags: frozenset[str],
    cast: _Cast | None,
) -> dict[str, Any]:
    arguments, options = list(call.arguments), dict(call.options)

    def inner(value: Any, *, with_cast: _Cast | None = cast, more: Any = ()) -> dict[str, Any]:
        call = value if isinstance(value, Call) else Call("choice", (value,))
        return _convert(name, call, kind, folders, lost, tags | frozenset(more), with_cast)

    if call.name == "tag":
        sweep = options.get("sweep", arguments[-1] if arguments else None)
        given = arguments if "sweep" in options else arguments[:-1]
        return inner(sweep, more=map(str, given))
    if call.name in ("shuffle", "sort"):
        if "list" in options:
            raise ValueError(f"{call.name}(list=…) is one value and no sweep")
        sweep = options.get("sweep")
        if sweep is None:
            sweep = arguments[0] if len(arguments) == 1 else Call("choice", tuple(arguments))
        # The order of choices means nothing to a search; a shuffled range ends before its stop.
        return inner(sweep, more=("shuffled",) if call.name == "shuffle" else ())
    if call.name in _CASTS:
        value = options.get("value", arguments[0] if len(arguments) == 1 else None)
        if value is None:
            value = Call("choice", tuple(arguments))
        own = _CASTS[call.name]
        return inner(value, with_cast=own if cast is None else lambda v: cast(own(v)))
    if call.name == "choice":
        if len(arguments) == 1 and isinstance(arguments[0], Call):
            return inner(arguments[0])
        values = [cast(item) if cast else item for item in arguments]
        if any(has_sweep(value) for value in values):
            raise ValueError("a choice of sweeps has no counterpart here")
        if not call.is_bare:
            values = [_passed(name, value, lost) for value in values]
        return {"type": "categorical", "choices": distinct(f"params.{name}", values, lost)}
    if call.name == "range":
        return _convert_range(_bounds(call, cast), kind, "shuffled" in tags)
    if call.name == "interval":
        return _convert_interval(call, kind, tags, cast)
    if call.name == "glob":
        return _convert_glob(name, call, folders)
    raise ValueError(f"{call.name}() has no counterpart here")


def _passed(name: str, value: Any, lost: list[str]) -> Any:
    """Return a choice as it arrives: within a function Hydra's sweepers write a text without its
    quotes."""
    if not isinstance(value, str):
        return value
    try:
        arrives = read_value(value)
    except ValueError:
        return value
    if isinstance(arrives, str | list | dict | Call):
        return value
    lost.append(f"params.{name}: the text {value!r} arrives without its quotes, as in Hydra")
    return arrives


def has_sweep(value: Any) -> bool:
    """Tell whether a value is a sweep, or holds one."""
    if isinstance(value, dict):
        return any(has_sweep(below) for below in value.values())
    if isinstance(value, list):
        return any(has_sweep(below) for below in value)
    return not isinstance(value, str | int | float | bool | None)


def _is_continuous(call: Call) -> bool:
    if call.name == "interval":
        return True
    if call.name == "int":
        return False
    return any(isinstance(a, Call) and _is_continuous(a) for a in call.arguments)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number is expected, not {value!r}")
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"a finite number is expected, not {value!r}")
    return value


def _bounds(call: Call, cast: _Cast | None) -> tuple[float, float, float]:
    """Return start, stop and step of a range."""
    given = dict(zip(("start", "stop", "step"), call.arguments, strict=False)) | dict(call.options)
    if "stop" not in given:
        given = {"start": 0, "stop": given.get("start")} | {
            key: value for key, value in given.items() if key == "step"
        }
    start, stop, step = (_number(given.get(key, 1)) for key in ("start", "stop", "step"))
    if cast in (_CASTS["int"], _CASTS["float"]):
        start, stop, step = (cast(value) for value in (start, stop, step))  # type: ignore[misc]
    elif cast is not None:
        raise ValueError("a range can be cast to int and float alone")
    if step == 0:
        raise ValueError("the step of a range must not be 0")
    return start, stop, step


def _convert_range(
    bounds: tuple[float, float, float], kind: str, is_shuffled: bool
) -> dict[str, Any]:
    start, stop, step = bounds
    if kind == OPTUNA and not is_shuffled:
        if step < 0 or stop < start:
            raise ValueError(f"Optuna's sweeper takes no range from {start} down to {stop}")
        return _grid(*fit_grid(start, stop, step))
    if kind == OPTUNA_GRID and not is_shuffled:
        count = int((stop - start) // step)  # the plugin's own arithmetic
    else:
        first, last, width = (Decimal(str(value)) for value in bounds)
        # The values start + i·step before stop: as many as the quotient, rounded up.
        count = max(0, int(((last - first) / width).to_integral_value(ROUND_CEILING)))
    if count < 1:
        raise ValueError(f"the range from {start} to {stop} is empty for {kind}")
    whole = all(isinstance(value, int) for value in bounds)
    number = int if whole else float
    at = [Decimal(str(start)), Decimal(str(start)) + (count - 1) * Decimal(str(step))]
    if is_shuffled:
        if count > _MOST_VALUES:
            raise ValueError(f"a shuffled range of {count} values is too long")
        values = [number(at[0] + i * Decimal(str(step))) for i in range(count)]
        return {"type": "categorical", "choices": values}
    low, high = sorted(number(value) for value in at)
    return _grid(low, high, abs(step) if count > 1 else 1)


def _grid(low: float, high: float, step: float) -> dict[str, Any]:
    whole = all(isinstance(value, int) for value in (low, high)) and float(step).is_integer()
    found: dict[str, Any] = {"type": "int" if whole else "float", "low": low, "high": high}
    if (whole and step == 1) or low == high:
        return found
    return found | {"step": int(step) if whole else step}


def _convert_interval(
    call: Call, kind: str, tags: frozenset[str], cast: _Cast | None
) -> dict[str, Any]:
    if kind == BASIC:
        raise ValueError("Hydra's basic sweeper takes no interval()")
    given = dict(zip(("start", "end"), call.arguments, strict=False)) | dict(call.options)
    if len(call.arguments) > 2 or given.keys() != {"start", "end"}:
        raise ValueError("interval() takes start and end")
    low, high = _number(given["start"]), _number(given["end"])
    if cast not in (None, _CASTS["int"], _CASTS["float"]):
        raise ValueError("an interval can be cast to int and float alone")
    number = int if cast is _CASTS["int"] else float
    if low > high:
        raise ValueError(f"interval() ends below its start ({low} to {high})")
    found: dict[str, Any] = {"type": number.__name__, "low": number(low), "high": number(high)}
    if kind == OPTUNA_GRID:
        found["high"] -= 1
        if found["high"] < found["low"]:
            raise ValueError("the interval is empty for Optuna's grid")
        return found
    if "log" not in tags:
        return found
    if found["low"] <= 0:
        raise ValueError(f"a logarithmic range starts above 0 (got {low})")
    return found | {"log": True}


def _convert_glob(name: str, call: Call, folders: list[Path]) -> dict[str, Any]:
    """Return the options of a configuration group whose names match."""
    given = dict(zip(("include", "exclude"), call.arguments, strict=False)) | dict(call.options)

    def patterns(key: str) -> list[str]:
        value = given.get(key) or []
        return [str(item) for item in (value if isinstance(value, list) else [value])]

    group = re.sub(r"@.*", "", name).lstrip("+/")
    for folder in folders:
        if re.fullmatch(r"[\w/-]+", group) and os.path.isdir(folder / group):
            names = sorted(p.stem for p in (folder / group).iterdir() if p.suffix == ".yaml")
            chosen = [
                one
                for one in names
                if any(fnmatch(one, p) for p in patterns("include"))
                and not any(fnmatch(one, p) for p in patterns("exclude"))
            ]
            if chosen:
                return {"type": "categorical", "choices": chosen}
    raise ValueError(f"glob() has no counterpart here, and there is no folder {group} with options")
