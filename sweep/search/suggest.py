"""How a trial of Optuna's chooses its parameters, one after the other, parents first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweep.core.space import Parameter, Space


def suggest_all(
    space: Space, trial: Any, choose: Callable[[Any, Parameter], Any] | None = None
) -> dict[str, Any]:
    """Have a trial choose all its parameters; return them as Optuna stores them.

    Args:
        choose: Has it choose one; ``suggest`` when None.
    """
    choose = choose or suggest
    values: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for parameter in space:
        if parameter.is_active(values):
            stored[parameter.name] = choose(trial, parameter)
            values[parameter.name] = parameter.from_optuna(stored[parameter.name])
    return stored


def suggest(trial: Any, parameter: Parameter) -> Any:
    """Have a trial choose one parameter; return it as Optuna stores it."""
    if parameter.type == "categorical":
        return trial.suggest_categorical(parameter.name, parameter.distribution().choices)
    if parameter.type == "int":
        step = int(parameter.step or 1)
        return trial.suggest_int(
            parameter.name, parameter.low, parameter.high, step=step, log=parameter.log
        )
    value = trial.suggest_float(
        parameter.name, parameter.low, parameter.high, step=parameter.step, log=parameter.log
    )
    return parameter.exact(value)
