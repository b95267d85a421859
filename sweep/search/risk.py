"""Which configurations ask for too much, and how likely another one does.

Out of memory, killed, or out of time before the first report: such an end is no result, but it says
something about the configuration. ``view`` shows it to the samplers as infeasible. TPE only keeps
away from the very places where that was seen, and proposes their neighbours for long. So what it
proposes is held against an estimate, and drawn again where it would probably fail, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from sweep.core import outcomes
from sweep.core.attributes import END
from sweep.core.space import Parameter, Space

# Ends that tell of the configuration whatever was reported before, and those that do where nothing
# was: a trial that had time to report was at least no hopeless one.
_ALWAYS = (outcomes.OUT_OF_MEMORY, outcomes.KILLED, *outcomes.TOO_MUCH)
_WITHOUT_A_REPORT = (outcomes.TIMEOUT, outcomes.STALLED)

LIMIT = 0.35  # estimates above it are drawn again; `python -m benchmarks.failing` chose it
NEWEST = 500  # trials that an estimate is made of: solving costs their number's third power
_WIDTH = 0.3  # of a bump, in parts of a parameter's range
_TREND = 4.0  # weight of what is linear against what is local: memory grows with every size
_NOISE = 0.1


def asked_too_much(trial: FrozenTrial) -> bool:
    """Tell whether a failed trial ended for a reason that its like would share."""
    end = trial.user_attrs.get(END)
    if not isinstance(end, dict) or end.get("state") != outcomes.FAILED:
        return False
    outcome = end.get("outcome")
    return outcome in _ALWAYS or (outcome in _WITHOUT_A_REPORT and not trial.intermediate_values)


class Risk:
    """An estimate, from a study's trials, of how likely a configuration asks for too much.

    Least squares on -1 (went well) and 1, with a kernel of a linear and a local part: a product of
    sizes that has to stay below a limit is a plane where the sizes are logarithmic.

    Args:
        trials: Oldest first; those that say nothing about it are left out. One that runs and has
            reported fits so far: failures are seen first, and trials that go well run for hours.
    """

    def __init__(self, space: Space, trials: Sequence[FrozenTrial]) -> None:
        self._space = space
        told = [t for t in trials if _goes_well(t) or asked_too_much(t)][-NEWEST:]
        signs = [1.0 if trial.state == TrialState.FAIL else -1.0 for trial in told]
        self.is_known = 1.0 in signs
        if not self.is_known:
            return
        self._places = np.array([_place(space, numbers(trial)) for trial in told])
        kernel = _kernel(self._places, self._places) + _NOISE * np.eye(len(told))
        self._weights = np.linalg.solve(kernel, np.array(signs))

    def of(self, params: Mapping[str, float]) -> float:
        """Return the estimate for a configuration: about 0 where it goes well, 1 where it fails.

        Args:
            params: As Optuna's numbers.
        """
        if not self.is_known:
            return 0.0
        here = np.array([_place(self._space, params)])
        return float((_kernel(here, self._places)[0] @ self._weights + 1) / 2)


def _goes_well(trial: FrozenTrial) -> bool:
    if trial.state == TrialState.RUNNING:
        return bool(trial.intermediate_values)
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def numbers(trial: FrozenTrial) -> dict[str, float]:
    """Return a trial's parameters as Optuna's numbers."""
    return {
        name: trial.distributions[name].to_internal_repr(value)
        for name, value in trial.params.items()
    }


def _kernel(some: np.ndarray, others: np.ndarray) -> Any:
    products = some @ others.T
    squares = (some**2).sum(1)[:, None] + (others**2).sum(1)[None] - 2 * products
    return _TREND * products + np.exp(-squares / (2 * _WIDTH**2))


def _place(space: Space, params: Mapping[str, float]) -> list[float]:
    """Return a configuration as numbers from -0.5 to 0.5; 0 for a parameter that it lacks."""
    place: list[float] = []
    for parameter in space:
        value = params.get(parameter.name)
        if parameter.type != "categorical":
            place.append(0.0 if value is None else _part(parameter, value) - 0.5)
            continue
        count = len(parameter.choices)
        place += [0.5 if value == index else 0.0 for index in range(count)]
        if all(_is_number(choice) for choice in parameter.choices) and count > 1:
            order = sorted(range(count), key=lambda index: parameter.choices[index])
            place.append(0.0 if value is None else order.index(int(value)) / (count - 1) - 0.5)
    return place


def _part(parameter: Parameter, value: float) -> float:
    low, high = parameter.low, parameter.high
    assert low is not None and high is not None
    if low == high:
        return 0.5
    if parameter.log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _is_number(choice: Any) -> bool:
    return isinstance(choice, (int, float)) and not isinstance(choice, bool)
