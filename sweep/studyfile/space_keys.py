"""The part of a study file that declares what varies: ``space``, ``fixed`` and ``points``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import closest
from sweep.core.space import Parameter, Prior, Space, to_optuna, whole_steps
from sweep.studyfile.conditions import order_parents_first, resolve_conditions
from sweep.studyfile.ranges import explain_type
from sweep.studyfile.rules import (
    INVALID,
    Boolean,
    Entry,
    Real,
    Rule,
    Whole,
    Word,
    either,
    number_advice,
    shown_number,
)
from sweep.studyfile.sections import REQUIRED, Key, Section

# Optuna's tables hold numbers as double precision; a whole number above 2**53 would come back
# as another one.
EXACT = 2**53
# Travels as --name=value and as name=value, and Optuna's column takes 512 characters.
_NAME = re.compile(r"[\w+@~][\w./:@+-]{0,199}")


@dataclass(frozen=True)
class Choices:
    """A list of JSON values that Optuna can tell apart."""

    in_words = "list of values"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "list" or not at.node.items:
            return at.report("must be a list of at least one value")
        items = at.items()
        plain = [is_plain(item) for item in items]
        if not all(plain):
            return INVALID
        values = at.node.plain()
        stored = [to_optuna(value) for value in values]
        firsts = [stored.index(one) for one in stored]  # compared as Optuna does: 1, 1.0 and true
        for i, first_at in enumerate(firsts):
            first = items[first_at].node.shown()
            if first_at != i and first == items[i].node.shown():
                items[i].report("is given twice", "Remove one of the two.")
            elif first_at != i:
                advice = "Leave one out, or make them different texts."
                items[i].report(f"is the same as {first} to Optuna", advice)
        return tuple(values) if len(set(firsts)) == len(firsts) else INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "minItems": 1}


@dataclass(frozen=True)
class Conditions:
    """``when``: for each parent the value, or the list of values, for which this one exists."""

    in_words = "names with values"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "map" or not at.node.entries:
            return at.report("must be a mapping of parameters to values")
        return at.node.plain()

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "minProperties": 1}


@dataclass(frozen=True)
class Bound:
    """A number; in the file also the name of a parameter, which ``bounds`` has replaced by now."""

    number: Rule

    @property
    def in_words(self) -> str:
        return f"{self.number.in_words}, or a parameter's name"

    def read(self, at: Entry) -> Any:
        value = at.node.value
        is_text = isinstance(value, str) and not number_advice(at.node)
        if is_text and re.search(r"[-+*/%]", value) and re.search(r"[^\W\d]", value):
            advice = 'Write the farthest number here, and the relation under where: ["x <= 2 * y"].'
            return at.report("must be a number, or the name of a parameter", advice)
        return self.number.read(at)

    def schema(self) -> dict[str, Any]:
        return either([self.number.schema(), {"type": "string", "minLength": 1}])


_WEIGHT = Real(0, 1_000_000)


@dataclass(frozen=True)
class Weights:
    """``weights``: a number for each choice, in their order; ``_check_prior`` counts them."""

    in_words = "list of numbers"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "list" or not at.node.items:
            return at.report("must be a list of numbers, one for each choice")
        found = [_WEIGHT.read(item) for item in at.items()]
        if INVALID in found:
            return INVALID
        if not any(found):
            return at.report("must not be all 0")
        return tuple(found)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": _WEIGHT.schema()}


PRIOR_OF_RANGE = Section(
    "a prior",
    Prior,
    {
        "center": Key(
            Real(),
            "Where the best value is believed to be; the first trial starts there.",
            example=0.001,
            aliases="centre mean mu mode loc default",
            default=REQUIRED,
        ),
        "spread": Key(
            Real(above=0),
            "How far off it may well be, one standard deviation: a factor where log is true, else "
            "a distance.",
            example=3,
            aliases="sigma std sd scale stddev stdev",
            default=REQUIRED,
        ),
    },
)
PRIOR_OF_CHOICES = Section(
    "a prior",
    Prior,
    {
        "weights": Key(
            Weights(),
            "For each choice, in their order, how probable it is that it is the best.",
            example=[1, 3, 1],
            aliases="probabilities weight probs p",
            default=REQUIRED,
        )
    },
)


def _prior_key(section: Section, example: Any) -> Key:
    doc = "Where the best value is believed to be; no value is left out for it."
    return Key(section, doc, example=example, aliases="belief expected guess", default=None)


def _range_keys(number: Rule, low: float, high: float, step: float) -> dict[str, Key]:
    """Return the keys of a range; the numbers are examples."""
    return {
        "low": Key(
            Bound(number),
            "Smallest value, inclusive; or the parameter above which it stays.",
            example=low,
            aliases="min lower minimum start from",
            default=REQUIRED,
        ),
        "high": Key(
            Bound(number),
            "Largest value, inclusive; or the parameter below which it stays.",
            example=high,
            aliases="max upper maximum end stop to",
            default=REQUIRED,
        ),
        "step": Key(
            number,
            "Distance between neighbouring values; it must divide the range.",
            example=step,
            aliases="q quantum quantisation stride",
        ),
        "log": Key(
            Boolean(),
            "Whether the logarithm is uniform: for values over decades.",
            example=True,
            aliases="logarithmic log_scale log_uniform",
        ),
        "prior": _prior_key(PRIOR_OF_RANGE, {"center": 10 * low, "spread": 3}),
    }


def _parameter(kind: str, keys: Mapping[str, Key]) -> Section:
    kind_key = Key(Word((kind,)), "float, int or categorical.", example=kind, default=REQUIRED)
    when = Key(
        Conditions(),
        "The parameter exists only where others have these values.",
        example={"optimizer": "sgd"},
        aliases="if condition conditions depends_on",
    )
    what = f"a parameter of type {kind}"
    return Section(what, Parameter, {"type": kind_key, **keys, "when": when})


PARAMETERS: dict[str, Section] = {
    "float": _parameter("float", _range_keys(Real(), 0.0001, 0.1, 0.1)),
    "int": _parameter("int", _range_keys(Whole(-EXACT, EXACT), 1, 4, 1)),
    "categorical": _parameter(
        "categorical",
        {
            "choices": Key(
                Choices(),
                "The values, of any kind.",
                example=[32, 64, 128],
                aliases="values options choice categories",
                default=REQUIRED,
            ),
            "prior": _prior_key(PRIOR_OF_CHOICES, {"weights": [1, 3, 1]}),
        },
    ),
}


@dataclass(frozen=True)
class SpaceRule:
    """All parameters by name. Read as a Space, parents first."""

    in_words = "names with parameters"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "map":
            example = "For example lr: {type: float, low: 0.0001, high: 0.1, log: true}."
            return at.report("must be a mapping of parameters", example)
        found: dict[str, Parameter | None] = {
            name: _read_parameter(name, entry) for name, entry in at.entries().items()
        }
        good = {name: parameter for name, parameter in found.items() if parameter}
        checked = {name: resolve_conditions(one, found, at) for name, one in good.items()}
        ordered = order_parents_first(checked, at)
        if len(good) < len(found) or INVALID in checked.values() or ordered is None:
            return INVALID
        return Space(tuple(ordered))

    def schema(self) -> dict[str, Any]:
        kinds = either([section.schema() for section in PARAMETERS.values()])
        return {"type": "object", "additionalProperties": kinds}


def check_name(name: str, at: Entry) -> bool:
    """Tell whether a parameter can be called so, and report where not."""
    if _NAME.fullmatch(name):
        return True
    at.report(
        "must be named by 1 to 200 letters, digits and any of _ . / : @ + -, not starting with '-'",
        "Rename it.",
        f'"{name[:60]}"',
    )
    return False


def _read_parameter(name: str, at: Entry) -> Parameter | None:
    named = check_name(name, at)
    node = at.node
    if node.kind != "map":
        advice = f"For one value write it under fixed, {name}: {node.shown()}."
        if node.kind == "list":
            advice = f"Write {{type: categorical, choices: {node.shown()}}}."
        elif node.value is None:
            advice = "For example {type: float, low: 0.0001, high: 0.1, log: true}."
        at.report("must be a mapping with a type", advice)
        return None
    kind = _read_type(at)
    if kind is None:
        return None
    section = PARAMETERS[kind]
    values = section.read_values(at)
    if INVALID in list(values.values()) or not named or not set(node.entries) <= set(section.keys):
        return None
    if kind != "categorical" and not _check_range(at=at, **values):
        return None
    parameter = Parameter(name, **values)
    if parameter.prior and not _check_prior(parameter, parameter.prior, at["prior"]):
        return None
    return parameter


def _read_type(at: Entry) -> str | None:
    entries = at.node.entries
    if "type" not in entries:
        advice = "One of float, int, categorical."
        if {"choices", "values"} & set(entries):
            advice = "Write type: categorical."
        elif {"low", "high", "min", "max"} & set(entries):
            whole = all(isinstance(c.value, int) for c in entries.values())
            advice = "Write type: int or type: float." if whole else "Write type: float."
        at.report_missing("type", advice)
        return None
    written = entries["type"]
    if isinstance(written.value, str) and written.value in PARAMETERS:
        return written.value
    advice = explain_type(written.value, at.node) if isinstance(written.value, str) else ""
    if not advice:
        near = closest(written.text, list(PARAMETERS))
        advice = f"Did you mean {near}?" if near else "For example type: float."
    at["type"].report("must be float, int or categorical", advice)
    return None


def _check_range(at: Entry, type: str, low: Any, high: Any, step: Any, log: bool, **_: Any) -> bool:
    """Tell whether a range's numbers go together, and report where not."""
    first = len(at.reader.problems)
    if low > high:
        at["low"].report(f"must not be above high, {at['high'].node.text}", "Swap the two.")
    if log and low <= 0 and type == "int":
        at["low"].report("must be at least 1 when log is true", "Write low: 1.")
    elif log and low <= 0:
        advice = "Use a small positive number, such as 1e-6."
        at["low"].report("must be > 0 when log is true", advice)
    if step is None:
        pass
    elif step <= 0:
        at["step"].report("must be above 0", "Remove it for no step.")
    elif log and not (type == "int" and step == 1):
        rule = "cannot go with log: Optuna has no such range"
        at["step"].report(rule, "Remove one of the two.")
    elif low < high:
        _check_step(low, high, step, at["step"])
    return len(at.reader.problems) == first


def _check_prior(parameter: Parameter, prior: Prior, at: Entry) -> bool:
    """Tell whether a prior goes with its parameter, and report where not."""
    first = len(at.reader.problems)
    if parameter.type == "categorical":
        if len(prior.weights) != len(parameter.choices):
            rule = f"must be one for each of the {len(parameter.choices)} choices"
            at["weights"].report(rule, "In their order.", str(len(prior.weights)))
        return len(at.reader.problems) == first
    low, high, center, spread = parameter.low, parameter.high, prior.center, prior.spread
    assert low is not None and high is not None and center is not None and spread is not None
    if not low <= center <= high:
        rule = f"must lie in the range from {shown_number(low)} to {shown_number(high)}"
        at["center"].report(rule, "Correct it, or widen the range.")
    if parameter.log and spread <= 1:
        rule = "must be above 1 where log is true: it is a factor"
        at["spread"].report(rule, "For example 3: a third to three times the center.")
    return len(at.reader.problems) == first


def _check_step(low: float, high: float, step: float, at: Entry) -> None:
    steps, divides = whole_steps(low, high, step)
    if divides:
        return
    if steps == 0:
        width = shown_number(round(high - low, 12))
        at.report(f"must not be above high - low, {width}", "Use a smaller step.")
        return
    nearest = round(low + steps * step, 12)
    if isinstance(low, int) and isinstance(step, int):
        nearest = low + steps * step
    at.report(
        f"must divide the range from {shown_number(low)} to {shown_number(high)}",
        f"Write high: {shown_number(nearest)}, or another step.",
    )


def is_plain(at: Entry) -> bool:
    """Tell whether all numbers below a place are finite, and report where not."""
    for node in at.node.walk():
        if isinstance(node.value, float) and not math.isfinite(node.value):
            found = Entry(node, at.path, at.reader)
            found.report("must be finite", f'Write it as text: "{node.text}".')
            return False
    return True


@dataclass(frozen=True)
class Values:
    """``fixed``: names and values that every trial gets."""

    in_words = "names with values"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "map":
            return at.report("must be a mapping of names to values")
        good = [check_name(name, at[name]) and is_plain(at[name]) for name in at.node.entries]
        return at.node.plain() if all(good) else INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True)
class Configurations:
    """``points``: configurations of the user's own, which ``crosschecks`` holds to the space."""

    in_words = "list of names with values, or a CSV file"

    def read(self, at: Entry) -> Any:
        if isinstance(at.node.value, str) and at.node.value.endswith(".csv"):
            return ()  # read later, by the space
        if at.node.kind != "list":
            return at.report("must be a list of mappings, or a CSV file")
        good = [self._is_good(item) for item in at.items()]
        return tuple(at.node.plain()) if all(good) else INVALID

    def _is_good(self, at: Entry) -> bool:
        if at.node.kind == "map":
            return is_plain(at)
        at.report("must be a mapping", "For example {lr: 0.01}.")
        return False

    def schema(self) -> dict[str, Any]:
        rows = {"type": "array", "items": {"type": "object"}}
        return either([rows, {"type": "string", "pattern": r"\.csv$"}])
