"""Declared ranges of hyperparameters, in Optuna's terms, and their Optuna distributions.

Plain data: a worker reads it back from JSON without importing Optuna.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

ROUNDING = 1e-8  # of a step: so far a float may lie beside it, as Optuna has it
Value = Any  # a float, an int, or any JSON value for a choice


@dataclass(frozen=True)
class Prior:
    """Where the user believes the best value of a parameter to be.

    Attributes:
        center: The most probable value (float and int).
        spread: One standard deviation: a factor above 1 where the scale is logarithmic, else a
            distance.
        weights: Of a categorical: one for each choice, in their order, not all 0.
    """

    center: float | None = None
    spread: float | None = None
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter.

    Attributes:
        name: As the training knows it; dots are allowed ("model.optimizer.lr").
        type: "float", "int" or "categorical".
        low: Smallest value, inclusive (float and int).
        high: Largest value, inclusive (float and int).
        step: Distance between neighbouring values, or None.
        log: Whether the logarithm is uniform.
        choices: The values of a categorical, any JSON values.
        when: Conditions on other parameters: the name of each, and the values for which this
            parameter exists. All must hold.
        prior: Where its best value is believed to be; no value is left out for it.
    """

    name: str
    type: str
    low: float | int | None = None
    high: float | int | None = None
    step: float | int | None = None
    log: bool = False
    choices: tuple[Value, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    prior: Prior | None = None

    def is_active(self, values: Mapping[str, Value]) -> bool:
        """Tell whether the parameter exists beside these values of the others."""
        return all(
            parent in values and any(same_value(values[parent], wanted) for wanted in allowed)
            for parent, allowed in self.when.items()
        )

    def distribution(self) -> Any:
        """Return the Optuna distribution; a choice that is a list or object becomes JSON text."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.type == "categorical":
            return CategoricalDistribution([to_optuna(choice) for choice in self.choices])
        low: Any = self.low
        high: Any = self.high
        step: Any = self.step
        if self.type == "int":
            return IntDistribution(low, high, log=self.log, step=step or 1)
        return FloatDistribution(low, high, log=self.log, step=step)

    def distribution_json(self) -> str:
        """Return the text of ``distribution`` as Optuna's tables hold it, without Optuna.

        Importing Optuna takes longer than everything else that a launch does.
        """
        made: dict[str, Any]
        if self.type == "categorical":
            kind = "CategoricalDistribution"
            made = {"choices": [to_optuna(choice) for choice in self.choices]}
        else:
            low: Any = self.low
            high: Any = self.high
            if self.step:  # as Optuna has it: the range ends at its last step
                steps, is_whole = whole_steps(low, high, self.step)
                end = Decimal(repr(low)) + steps * Decimal(repr(self.step))
                high = high if is_whole else end
            if self.type == "int":
                kind = "IntDistribution"
                made = {"log": self.log, "step": int(self.step or 1)}
                made |= {"low": int(low), "high": int(high)}
            else:
                kind = "FloatDistribution"
                made = {"step": float(self.step) if self.step else None}
                made |= {"low": float(low), "high": float(high), "log": self.log}
        return json.dumps({"name": kind, "attributes": made})

    def to_internal(self, value: Value) -> float:
        """Return Optuna's number for a stored value: itself, or the index of a choice.

        Raises:
            ValueError: It is none of the parameter's.
        """
        if self.type != "categorical":
            number = float(value)
            if math.isnan(number) or (self.log and number <= 0):
                raise ValueError(f"{value!r} is no value of {self.name}")
            return float(self.exact(number))
        stored = [to_optuna(choice) for choice in self.choices]
        for is_same in (lambda a, b: type(a) is type(b) and a == b, same_value):
            for index, choice in enumerate(stored):
                if is_same(choice, value):
                    return float(index)
        raise ValueError(f"{value!r} is no choice of {self.name}")

    def contains(self, value: Value) -> bool:
        """Tell whether the parameter can take this value."""
        if self.type == "categorical":
            return any(same_value(choice, value) for choice in self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        value = self.exact(value)
        if self.low is None or self.high is None or not self.low <= value <= self.high:
            return False
        if self.type == "int" and not isinstance(value, int):
            return False
        return not self.step or whole_steps(self.low, value, self.step)[1]

    def exact(self, value: Value) -> Value:
        """Return a number that lies on a float's step but for rounding as it is written, and any
        other value as it is.

        Samplers reckon with floats, and come to 0.30000000000000004 where the step is 0.1: equal
        configurations would differ, and relations and ranges break by the last digit.
        """
        if self.type != "float" or not self.step or self.low is None:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return on_step(value, self.low, self.step)

    def converted(self, value: Value) -> Value:
        """Return another study's value in this parameter's type, and one that has none as it is.

        A whole number is one in either type: 3.0 for an int, 3 for a float. Nothing is rounded, but
        for a float's last digit (``exact``).
        """
        if self.type == "categorical":
            return next((choice for choice in self.choices if same_value(choice, value)), value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        if self.type == "float":
            return self.exact(float(value))
        return int(value) if float(value).is_integer() else value

    def count(self) -> int | None:
        """Return how many values the parameter can take, or None when they have no number."""
        if self.type == "categorical":
            return len(self.choices)
        if self.low is None or self.high is None:
            return None
        if self.low == self.high:
            return 1
        step = self.step or (1 if self.type == "int" else None)
        return whole_steps(self.low, self.high, step)[0] + 1 if step else None

    def values(self) -> list[Value]:
        """Return all values in order. Raises: ValueError when they have no number."""
        count = self.count()
        if count is None:
            raise ValueError(f"{self.name} has no end of values; give it a step")
        if self.type == "categorical":
            return list(self.choices)
        if self.type == "int":
            return [self.low + i * (self.step or 1) for i in range(count)]  # type: ignore
        low, step = Decimal(repr(self.low)), Decimal(repr(self.step or 0))
        return [float(low + i * step) for i in range(count)]

    def from_optuna(self, value: Value) -> Value:
        """Return the value that training gets for the one that Optuna stores."""
        if self.type == "categorical":
            for choice in self.choices:
                stored = to_optuna(choice)
                if type(stored) is type(value) and stored == value:
                    return choice
        return value


@dataclass(frozen=True)
class Space:
    """All parameters of a study, parents before those that depend on them."""

    parameters: tuple[Parameter, ...] = ()

    def __iter__(self) -> Any:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    def get(self, name: str) -> Parameter:
        """Return a parameter by name. Raises: KeyError."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def first_values(self) -> dict[str, Value]:
        """Return a value of every parameter, for a command that is looked at and not run."""
        return {p.name: p.choices[0] if p.choices else p.low for p in self.parameters}

    def grid_size(self, limit: int = 1_000_000) -> int | None:
        """Return how many different configurations there are, or None when they have no number.

        Parameters that depend on others count only where they exist. Counting stops at the limit
        when conditions make it necessary to go through combinations.
        """
        counts = {parameter.name: parameter.count() for parameter in self.parameters}
        if None in counts.values():
            return None
        parents = {name for parameter in self.parameters for name in parameter.when}
        free = math.prod(
            counts[p.name] or 0 for p in self.parameters if not p.when and p.name not in parents
        )
        bound = [p for p in self.parameters if p.when or p.name in parents]

        def count(position: int, chosen: dict[str, Value]) -> int:
            if position == len(bound):
                return 1
            parameter = bound[position]
            if not parameter.is_active(chosen):
                return count(position + 1, chosen)
            if parameter.name not in parents:
                return (counts[parameter.name] or 0) * count(position + 1, chosen)
            total = 0
            for value in parameter.values():
                total += count(position + 1, chosen | {parameter.name: value})
                if total * free > limit:
                    break
            return total

        return free * count(0, {})

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield every configuration: values of the parameters that exist beside each other.

        Raises: ValueError when they have no number.
        """
        yield from self._combinations(0, {})

    def _combinations(self, place: int, values: dict[str, Value]) -> Iterator[dict[str, Value]]:
        if place == len(self.parameters):
            yield values
            return
        parameter = self.parameters[place]
        if not parameter.is_active(values):
            yield from self._combinations(place + 1, values)
            return
        for value in parameter.values():
            yield from self._combinations(place + 1, values | {parameter.name: value})

    def from_optuna(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return training's values for a trial's stored ones, in declared order."""
        known = {p.name: p.from_optuna(values[p.name]) for p in self.parameters if p.name in values}
        return known | {name: v for name, v in values.items() if name not in known}


def whole_steps(low: float, high: float, step: float) -> tuple[int, bool]:
    """Return the steps that fit between two numbers, and whether they end at the second.

    Exact for numbers as they are written: 0.3 is three steps of 0.1.
    """
    distance = Decimal(repr(high)) - Decimal(repr(low))
    steps, rest = divmod(distance, Decimal(repr(step)))
    return int(steps), rest == 0


def on_step(value: float, low: float, step: float) -> float:
    """Return a number that lies on a step but for rounding as it is written; any other as it is."""
    steps = (value - low) / step
    if not math.isfinite(steps) or abs(steps - round(steps)) > ROUNDING:
        return value
    return float(Decimal(repr(low)) + round(steps) * Decimal(repr(step)))


def same_value(a: Value, b: Value) -> bool:
    """Compare two choices as a person would: 1 is 1.0, but true is not 1."""
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return bool(a == b)


def to_optuna(choice: Value) -> Value:
    """Return a choice as Optuna can store it: lists and objects as JSON text, the rest as is."""
    if isinstance(choice, list | tuple | dict):
        return json.dumps(choice, ensure_ascii=False, separators=(", ", ": "))
    return choice
