"""What a Gaussian process needs before it can propose: torch above all, for seconds."""

from __future__ import annotations

import dataclasses

import optuna

from sweep.core.study import Choice, Study
from sweep.search.draws import random_point
from sweep.search.samplers import build_sampler, one_thread, quiet
from sweep.search.suggest import suggest_all


def bring_in(study: Study) -> None:
    """Have a Gaussian process propose once for nothing: that imports all that it needs, whichever
    modules of Optuna's, SciPy's and torch's these are.

    Raises:
        SweepError: A package that it needs is not installed.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    few = dataclasses.replace(study, sampler=Choice("gp", {"startup_trials": 2}))
    kinds = {parameter.name: parameter.distribution() for parameter in study.space}
    directions = [objective.direction for objective in study.objectives]
    made = optuna.create_study(sampler=build_sampler(few, 0), directions=directions)  # type: ignore[arg-type]
    for number in range(2):
        params = random_point(study, number)
        made.add_trial(
            optuna.trial.create_trial(
                params=params,
                distributions={name: kinds[name] for name in params},
                values=[float(number)] * len(directions),
            )
        )
    with quiet(), one_thread():
        suggest_all(study.space, made.ask())
