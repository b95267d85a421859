"""A parameter of a W&B sweep as a range or as choices of ours.

What W&B draws is in its package ``sweeps`` (params.py, config/schema.json).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

# A normal range has no bounds; 95 % of it lies within two standard deviations.
DEVIATIONS = 2.0
_MOST_STEPS = 10**12  # a double tells these apart
_BOUNDS = ("min", "max")
_NORMAL = ("mu", "sigma")
# The keys that each distribution reads.
_USES: dict[str, tuple[str, ...]] = {
    "constant": ("value",),
    "categorical": ("values",),
    "categorical_w_probabilities": ("values", "probabilities"),
    **dict.fromkeys(("uniform", "int_uniform", "log_uniform", "log_uniform_values"), _BOUNDS),
    **dict.fromkeys(("inv_log_uniform", "inv_log_uniform_values"), _BOUNDS),
    **dict.fromkeys(("q_uniform", "q_log_uniform", "q_log_uniform_values"), (*_BOUNDS, "q")),
    **dict.fromkeys(("normal", "log_normal"), _NORMAL),
    **dict.fromkeys(("q_normal", "q_log_normal"), (*_NORMAL, "q")),
    "beta": ("a", "b"),
    "q_beta": ("a", "b", "q"),
}
_NORMALS = ("normal", "log_normal", "q_normal", "q_log_normal")
_RATE = re.compile(r"(^|[._-])(lr|learning_rate|.*rate|weight_decay|wd|dropout|.*prob)$", re.I)


def convert_parameter(
    name: str, given: Mapping[str, Any], lost: list[str], *, priors: bool = False
) -> dict[str, Any]:
    """Return a parameter as the study file holds it; ``{"value": x}`` for a constant.

    Args:
        priors: Whether the sampler takes a prior.
        lost: Gets what could not be carried over, or only nearly.

    Raises:
        ValueError, TypeError, KeyError: It cannot be carried over.
    """
    kind = given.get("distribution")
    kind = guess_kind(given) if kind is None else str(kind)
    if kind not in _USES:
        raise ValueError(f"distribution {kind} has no counterpart here")
    for key in given:
        if key not in ("distribution", "description", *_USES[kind]):
            lost.append(f"parameters.{name}.{key}: distribution {kind} does not use it")
    if kind == "constant":
        return {"value": given["value"]}
    if kind.startswith("categorical"):
        choices = distinct(f"parameters.{name}", given["values"], lost)
        found: dict[str, Any] = {"type": "categorical", "choices": choices}
        if "probabilities" not in given:
            return found
        weights = given["probabilities"]
        if priors and len(choices) == len(given["values"]) and _are_weights(weights, choices):
            return found | {"prior": {"weights": weights}}
        lost.append(f"parameters.{name}.probabilities: choices are equally likely here")
        return found
    made = _convert_range(name, kind, given, lost, priors=priors)
    if priors and kind in _NORMALS and "low" in made:
        made["prior"] = normal_prior(kind, *_mu_sigma(given), made)
    return made


def _are_weights(weights: Any, choices: Sequence[Any]) -> bool:
    if not isinstance(weights, list) or len(weights) != len(choices):
        return False
    return all(
        isinstance(w, int | float) and not isinstance(w, bool) and 0 < w < math.inf for w in weights
    )


def normal_prior(
    kind: str, mu: float, sigma: float, found: Mapping[str, Any]
) -> dict[str, float | int]:
    """Return the prior of a range that was made of a normal distribution.

    Args:
        kind: Its name; with ``log`` in it mu and sigma are of the logarithm.
        found: The range. One that has lost its logarithmic scale keeps a prior of its own scale.
    """
    center: float = mu
    if "log" in kind:
        center = math.exp(mu)
        spread = math.exp(sigma) if found.get("log") else center * math.sinh(sigma)
    else:
        spread = sigma
    center = min(max(center, found["low"]), found["high"])
    if found["type"] == "int":
        return {"center": round(center), "spread": float(f"{spread:.4g}")}
    return {"center": float(f"{center:.6g}"), "spread": float(f"{spread:.4g}")}


def guess_kind(given: Mapping[str, Any]) -> str:
    """Return the distribution that W&B takes where none is named."""
    if "values" in given:
        return "categorical_w_probabilities" if "probabilities" in given else "categorical"
    if "value" in given:
        return "constant"
    if "mu" in given or "sigma" in given:
        return "normal"
    if not given:
        raise ValueError("it says neither values nor min and max")
    whole = all(_is_whole(given.get(key)) for key in _BOUNDS)
    return "int_uniform" if whole else "uniform"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(given: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = given.get(key, default) if default is not None else given[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        both = "min and max" if key in _BOUNDS else key
        raise TypeError(f"{both} must be numbers (got {value!r})")
    if not math.isfinite(value):
        raise ValueError(f"{key} must be finite (got {value!r})")
    return value


def _convert_range(
    name: str, kind: str, given: Mapping[str, Any], lost: list[str], *, priors: bool
) -> dict[str, Any]:
    base = kind.removeprefix("q_").removeprefix("inv_")
    log = base.startswith("log")
    if base == "beta":
        low, high = 0.0, 1.0
        if (given.get("a", 1), given.get("b", 1)) != (1, 1):
            lost.append(
                f"parameters.{name}: {kind} has no counterpart here; it became even from 0 to 1"
            )
    elif base in ("normal", "log_normal"):
        what = f"parameters.{name}: {kind}"
        low, high = normal_bounds(what, *_mu_sigma(given), lost, log=log, priors=priors)
        if low < 0 and (_mu_sigma(given)[0] > 0 or _RATE.search(name)):
            lost.append(
                f"parameters.{name}: its range reaches below 0 ({low:g}), as W&B's does; raise low "
                "unless it may be negative"
            )
    else:
        low, high = _number(given, "min"), _number(given, "max")
        if low >= high:
            raise ValueError(f"min {low} is not less than max {high}")
        if base == "log_uniform":
            low, high = _exponents(name, kind, low, high, lost)
    if kind == "int_uniform":
        if low != int(low) or high != int(high):
            raise ValueError(f"int_uniform needs whole numbers (got {low} and {high})")
        if (low, high) == (0, 1):
            lost.append(
                f"parameters.{name}: W&B draws 0 or 1 and nothing between, as min and max are "
                "whole; write 0.0 and 1.0 for numbers between them"
            )
        return {"type": "int", "low": int(low), "high": int(high)}
    if log and low <= 0:
        raise ValueError(f"a logarithmic range starts above 0 (got {low})")
    if kind.startswith("q_"):
        return _quantise(name, low, high, _number(given, "q", 1), log, lost)
    if low == high:
        return {"value": low}
    found = {"type": "float", "low": float(low), "high": float(high)}
    return found | {"log": True} if log else found


def _exponents(
    name: str, kind: str, low: float, high: float, lost: list[str]
) -> tuple[float, float]:
    """Return the values of a range that is given by its exponents."""
    if "inv_" in kind:
        low, high = -high, -low
    try:
        bounds = float(f"{math.exp(low):.6g}"), float(f"{math.exp(high):.6g}")
    except OverflowError:
        raise ValueError(f"{kind} takes exponents, and exp({high}) is infinite") from None
    likely = "; for the values themselves use log_uniform_values" if low > 0 and high <= 1 else ""
    lost.append(
        f"parameters.{name}: {kind} takes min and max as exponents of e, so W&B draws from "
        f"{bounds[0]:g} to {bounds[1]:g}{likely}"
    )
    return bounds


def _mu_sigma(given: Mapping[str, Any]) -> tuple[float, float]:
    return _number(given, "mu", 0.0), _number(given, "sigma", 1.0)


def normal_bounds(
    what: str, mu: float, sigma: float, lost: list[str], *, log: bool, priors: bool
) -> tuple[float, float]:
    """Return the ends of the range that a normal distribution becomes.

    Args:
        what: The parameter and its distribution, for what is said.
        log: mu and sigma are of the logarithm.
        priors: Whether the sampler takes a prior.

    Raises:
        ValueError: There are none.
    """
    if sigma < 0:
        raise ValueError(f"sigma must not be below 0 (got {sigma})")
    low, high = mu - DEVIATIONS * sigma, mu + DEVIATIONS * sigma
    if log:
        try:
            low, high = math.exp(low), math.exp(high)
        except OverflowError:
            raise ValueError(f"mu {mu} and sigma {sigma} give infinite values") from None
    scale = ", on a logarithmic scale" if log else ""
    if priors:
        lost.append(
            f"{what} has no ends; it became mu ± {DEVIATIONS:g} sigma{scale} with a prior, and "
            "nothing beyond is tried"
        )
    else:
        lost.append(
            f"{what} has no counterpart here; it became even over mu ± {DEVIATIONS:g} sigma{scale}"
        )
    return float(f"{low:.4g}"), float(f"{high:.4g}")


def multiples(low: float, high: float, q: float) -> tuple[Decimal, Decimal, Decimal]:
    """Return the least and greatest multiple of q that W&B rounds to, and q; all are exact."""
    start, end, width = (Decimal(str(value)) for value in (low, high, q))
    if width <= 0:
        raise ValueError(f"q must be above 0 (got {q})")
    if (end - start) / width > _MOST_STEPS:
        raise ValueError(f"q {q} is too small for a range from {low} to {high}")
    half = Decimal("0.5")
    # Of the bounds themselves nothing is ever drawn: a half is rounded inwards.
    first = (start / width + half).to_integral_value(ROUND_FLOOR)
    last = (end / width - half).to_integral_value(ROUND_CEILING)
    return first * width, max(first, last) * width, width


def _quantise(
    name: str, low: float, high: float, q: float, log: bool, lost: list[str]
) -> dict[str, Any]:
    first, last, step = multiples(low, high, q)
    whole = step == int(step)
    number = int if whole else float
    if first == last:
        lost.append(f"parameters.{name}: W&B rounds all of it to {number(first)}")
        return {"value": number(first)}
    if log and not whole:
        lost.append(f"parameters.{name}.q: a logarithmic range has no steps here")
        return {"type": "float", "low": float(low), "high": float(high), "log": True}
    if log and step == 1:
        if first < 1:
            lost.append(
                f"parameters.{name}: a logarithmic range starts above 0: 0, to which W&B rounds, "
                "is left out"
            )
            first = Decimal(1)
        if first == last:
            return {"value": int(first)}
        return {"type": "int", "low": int(first), "high": int(last), "log": True}
    if log:
        lost.append(
            f"parameters.{name}: a range has steps or a logarithmic scale here; it became even "
            f"over the multiples of {int(step)}"
        )
    if (first, last) != (Decimal(str(low)), Decimal(str(high))):
        lost.append(
            f"parameters.{name}: the bounds became the outermost multiples of q, "
            f"{number(first)} and {number(last)}"
        )
    found = {"type": number.__name__, "low": number(first), "high": number(last)}
    return found if whole and step == 1 else found | {"step": number(step)}


def distinct(name: str, values: Any, lost: list[str]) -> list[Any]:
    """Return choices without those that Optuna cannot tell apart. Raises: TypeError, ValueError."""
    if not isinstance(values, list):
        raise TypeError(f"the choices must be a list (got {values!r})")
    if not values:
        raise ValueError("there are no choices")
    kept: list[Any] = []
    for value in values:
        other = next((one for one in kept if value == one), None)
        if value not in kept:
            kept.append(value)
        elif isinstance(value, bool) == isinstance(other, bool):
            lost.append(f"{name}: the choice {value!r} is there twice, and was dropped once")
        else:
            lost.append(
                f"{name}: the choice {value!r} is the same as {other!r} to Optuna, and was dropped"
            )
    return kept
