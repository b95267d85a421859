"""Optuna's terminator: whether so little is left to gain that a study may end.

Imports Optuna and, through it, torch: its evaluators fit a Gaussian process.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sweep.core.study import Study
from sweep.search.samplers import one_thread, require, silence
from sweep.storage.budgets import Reached

if TYPE_CHECKING:
    from sweep.storage.optuna_storage import PostgresStorage

_ADVICE = "pip install torch where the tasks run, or use patience instead"


def check(study: Study) -> None:
    """Raises: SweepError: The study has a terminator, and a package that it needs is missing."""
    if study.terminator.type != "none":
        require("torch", f"terminator {study.terminator.type}", _ADVICE)


def judge(study: Study, storage: PostgresStorage, study_id: int) -> Reached | None:
    """Return why the terminator ends the study, or None while it goes on.

    A look costs a fit for each of the first 20 trials that it judges by, about a second, so it is
    for whoever has just finished a trial, while no training of his waits.

    Raises:
        DatabaseUnavailable: The database does not answer.
        SweepError: A package is missing.
    """
    kind, options = study.terminator.type, study.terminator.options
    if kind == "none":
        return None
    check(study)
    from sweep.search.view import SamplerView

    least = options.get("min_trials", 30)
    view = SamplerView(storage)
    trials = view.get_all_trials(study_id, deepcopy=False)
    complete = sum(trial.state.name == "COMPLETE" for trial in trials)
    if complete < least:
        return None
    with silence(), warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", FutureWarning)  # to be moved out of Optuna in 6.0
        import optuna.terminator

        terminator = optuna.terminator
        improvement: optuna.terminator.BaseImprovementEvaluator
        if kind == "emmr":
            improvement = terminator.EMMREvaluator(
                deterministic_objective=options.get("deterministic", False), seed=study.seed
            )
        else:
            improvement = terminator.RegretBoundEvaluator(seed=study.seed)
        error = terminator.MedianErrorEvaluator(
            improvement, warm_up_trials=0, n_initial_trials=min(20, least - 1)
        )
        ends = terminator.Terminator(improvement, error, min_n_trials=least).should_terminate(
            optuna.study.Study(view.get_study_name_from_id(study_id), view)
        )
    if not ends:
        return None
    what = f"its terminator ({kind}) finds little left to gain after {complete} trials"
    return Reached(what, leave=False, by="terminator")
