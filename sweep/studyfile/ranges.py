"""Kinds of ranges that other tools have and Optuna lacks, and what comes nearest."""

from __future__ import annotations

import math
from typing import Any

from sweep.studyfile.tree import Node

_PLAIN = {
    "uniform": "float",
    "double": "float",
    "real": "float",
    "number": "float",
    "integer": "int",
    "int_uniform": "int",
    "discrete": "int",
    "discrete_uniform": "float",
    "choice": "categorical",
    "enum": "categorical",
    "category": "categorical",
    "str": "categorical",
    "string": "categorical",
    "choices": "categorical",
}
_LOG = ("loguniform", "log_uniform", "reverse_log_uniform", "inv_log_uniform", "log")
_LOG_VALUES = ("log_uniform_values", "inv_log_uniform_values")
_STEPPED = ("quniform", "q_uniform", "quantized_uniform", "qrandint")
_STEPPED_LOG = ("qloguniform", "q_log_uniform", "q_log_uniform_values", "qlograndint")
_NORMAL = ("normal", "gaussian", "randn")
_STEPPED_NORMAL = ("qnormal", "q_normal", "qrandn")
_LOGNORMAL = ("lognormal", "log_normal")
_STEPPED_LOGNORMAL = ("qlognormal", "q_log_normal")


def explain_type(kind: str, node: Node) -> str:
    """Return what to write for a kind of range that is not ours, or an empty string.

    Args:
        kind: The type that was written.
        node: The parameter, whose numbers go into the suggestion.
    """
    name = kind.lower().replace("-", "_")
    low = _number(node, "low", "min", "lower")
    high = _number(node, "high", "max", "upper")
    step = _text(_number(node, "q", "step"))
    ends = f"low: {_text(low)}, high: {_text(high)}"
    if name in ("constant", "const", "fixed"):
        return "Put a value that does not vary under fixed."
    if name in ("bool", "boolean", "flag"):
        return "Write {type: categorical, choices: [true, false]}."
    if name == "randint":
        return "Write {type: int, low: …, high: …}; high is included."
    if name in _PLAIN:
        return f"Write type: {_PLAIN[name]}."
    if name in _LOG_VALUES:
        return f"Write {{type: float, {ends}, log: true}}."
    if name in _LOG:
        return (
            "Write {type: float, low: …, high: …, log: true}, with the values themselves and not "
            "their logarithms."
        )
    if name in _STEPPED:
        return f"Write {{type: float, {ends}, step: {step}}}."
    if name in _STEPPED_LOG:
        return (
            "Optuna has no range with both log and step; nearest is {type: int, low: …, high: …, "
            "log: true}, or a categorical with the values."
        )
    return _explain_normal(name, node, step)


def _explain_normal(name: str, node: Node, step: str) -> str:
    mu = _number(node, "mu", "mean", "loc")
    sigma = _number(node, "sigma", "std", "sd", "scale")
    if mu is None and sigma is None:
        mu, sigma = 0.0, 1.0  # as W&B has it
    known = mu is not None and sigma is not None
    low = mu - 3 * sigma if known else None  # type: ignore[operator]
    high = mu + 3 * sigma if known else None  # type: ignore[operator]
    if name in _NORMAL:
        ends = f"low: {_text(low)}, high: {_text(high)}"
        return f"Optuna has no normal range; nearest is {{type: float, {ends}}}, mu ± 3 sigma."
    if name in _STEPPED_NORMAL:
        ends = f"low: {_text(low)}, high: {_text(high)}, step: {step}"
        return f"Optuna has no normal range; nearest is {{type: float, {ends}}}, mu ± 3 sigma."
    if name in (*_LOGNORMAL, *_STEPPED_LOGNORMAL):
        ends = f"low: {_text(_exp(low))}, high: {_text(_exp(high))}"
        steps = " (and has no step beside log)" if name in _STEPPED_LOGNORMAL else ""
        return (
            f"Optuna has no log-normal range{steps}; nearest is "
            f"{{type: float, {ends}, log: true}}, exp(mu ± 3 sigma)."
        )
    return ""


def _number(node: Node, *names: str) -> float | None:
    for name in names:
        child = node.entries.get(name)
        value: Any = child.value if child else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _exp(value: float | None) -> float | None:
    return math.exp(value) if value is not None and abs(value) < 700 else None


def _text(value: float | None) -> str:
    return "…" if value is None else f"{value:.6g}"
