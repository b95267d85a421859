"""How much each parameter matters: Optuna's PED-ANOVA over the complete trials."""

from __future__ import annotations

import warnings

from sweep.core.space import to_optuna
from sweep.results.page.source import Source
from sweep.results.page.views import evenly, valued

FEWEST = 10  # complete trials, below which nothing is said
MOST = 5000  # trials that are judged by


def importances(source: Source) -> dict[str, float]:
    """Return each parameter's share, the largest first, of the first objective; empty if unknown.

    Optuna's own evaluator, on a study in memory with the same trials. Where it has no answer (too
    few trials, one that never varied) there is none here.
    """
    done = evenly(valued(source), MOST)
    if len(done) < FEWEST:
        return {}  # and nothing is loaded for it: it brings scikit-learn, and takes two seconds
    import optuna

    study = source.study
    distributions = {p.name: p.distribution() for p in study.space}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the evaluator is marked experimental
            copy = optuna.create_study(directions=[study.objective.direction])  # type: ignore[list-item]
            for record in sorted(done, key=lambda record: record.number):
                params = {
                    name: to_optuna(value)
                    for name, value in record.params.items()
                    if name in distributions
                    and distributions[name]._contains(
                        distributions[name].to_internal_repr(to_optuna(value))
                    )
                }
                copy.add_trial(
                    optuna.trial.create_trial(
                        params=params,
                        distributions={name: distributions[name] for name in params},
                        value=record.values[0],
                    )
                )
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            found = optuna.importance.get_param_importances(copy, evaluator=evaluator)
    except (ValueError, RuntimeError):
        return {}
    finally:
        optuna.logging.set_verbosity(verbosity)
    return dict(found)
