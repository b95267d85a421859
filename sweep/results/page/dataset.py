"""All trials as columns, for what the page computes itself: brushing and comparing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sweep.core import outcomes
from sweep.core.space import Parameter
from sweep.results.page import views
from sweep.results.page.source import Source
from sweep.results.page.views import text_of

MOST_AXES = 10  # of parallel coordinates


def columns(source: Source, chosen: Sequence[Parameter]) -> dict[str, Any]:
    """Return what is known of each trial that has begun, one list a column.

    ``axes`` are the parameters with what places a value on them, ``params`` their values (the
    place among its choices of a categorical one, None of a parameter that a trial lacks), ``drawn``
    which of them are drawn, ``onAxes`` which trials are.

    Args:
        chosen: Parameters that took two values or more, the most important first.
    """
    study = source.study
    records = [record for record in source.records if record.params or record.attempts]
    complete = {record.number for record in views.valued(source)}
    scale = views.complete_scale(source)
    parameters = list(study.space)
    return {
        "metric": study.objective.metric,
        "direction": study.objective.direction,
        "count": len(complete),
        "states": list(outcomes.STATES),
        "axes": [_axis(source, parameter) for parameter in parameters],
        "drawn": [parameters.index(parameter) for parameter in chosen[:MOST_AXES]],
        "scale": _value_axis(scale),
        "trial": [record.number for record in records],
        "state": [outcomes.STATES.index(record.state) for record in records],
        "rank": [source.places[record.number] for record in records],
        "feasible": [record.is_feasible for record in records],
        "onAxes": [record.number in complete for record in records],
        "value": [
            views.short(record.values[0])
            if record.values and math.isfinite(record.values[0])
            else None
            for record in records
        ],
        "attempts": [len(record.attempts) for record in records],
        "seconds": [
            None if record.duration_s is None else round(record.duration_s, 1) for record in records
        ],
        "params": [
            [_cell(parameter, record.params) for record in records] for parameter in parameters
        ],
    }


def _cell(parameter: Parameter, params: Any) -> Any:
    if parameter.name not in params:
        return None
    value = params[parameter.name]
    if parameter.type != "categorical":
        return views.short(float(value))
    texts = [text_of(choice) for choice in parameter.choices]
    text = text_of(value)
    return texts.index(text) if text in texts else None


def _axis(source: Source, parameter: Parameter) -> dict[str, Any]:
    if parameter.type == "categorical":
        choices = [text_of(choice) for choice in parameter.choices]
        return {"name": parameter.name, "kind": "choice", "choices": choices}
    low, high = views.bounds(parameter, [r.params.get(parameter.name) for r in source.records])
    return {
        "name": parameter.name,
        "kind": "log" if parameter.log else "linear",
        "low": low,
        "high": high,
        "ends": [f"{low:.4g}", f"{high:.4g}"],
    }


def _value_axis(scale: views.Scale | None) -> dict[str, Any]:
    low, high = (scale.low, scale.high) if scale is not None else (0.0, 1.0)
    return {
        "kind": "log" if scale is not None and scale.log else "linear",
        "low": low,
        "high": high,
        "ends": [f"{low:.4g}", f"{high:.4g}"],
    }
