"""A study's sampler and pruner as Optuna's objects. Options are named as in the study file."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from sweep.errors import InputError, SweepError
from sweep.study import Choice, Study

# What auto stands for. A Gaussian process is better on smooth small spaces and worse on noisy ones;
# nobody knows which one a study has, and it needs torch.
AUTO = "tpe"


def sampler_name(study: Study) -> str:
    """Return the sampler's name, with auto resolved."""
    return AUTO if study.sampler.type == "auto" else study.sampler.type


def build_sampler(study: Study, seed: int) -> Any:
    """Return the Optuna sampler of a study.

    For designs that need no results (grid, random, qmc) it is the random one: what those propose is
    ``design``'s affair.

    Args:
        seed: Of this proposal: workers with one seed would all propose the same point.

    Raises:
        InputError: The sampler cannot search this space.
        SweepError: A package that the sampler needs is not installed.
    """
    import optuna

    name = sampler_name(study)
    _check(study, name)
    options = dict(study.sampler.options) if study.sampler.type != "auto" else {}
    with _silence():
        if name in ("random", "grid", "qmc"):
            return optuna.samplers.RandomSampler(seed=seed)
        if name == "tpe":
            # One parameter at a time with constant liars: the best of TPE's forms at a width of 20
            # on Branin, Hartmann6 and a noisy MLP (20 seeds, 200 trials).
            return optuna.samplers.TPESampler(
                seed=seed,
                n_startup_trials=options.get("startup_trials", 10),
                n_ei_candidates=options.get("candidates", 24),
                multivariate=options.get("multivariate", False),
                constant_liar=True,
            )
        if name == "gp":
            return optuna.samplers.GPSampler(
                seed=seed,
                n_startup_trials=options.get("startup_trials", 10),
                deterministic_objective=options.get("deterministic", False),
                warn_independent_sampling=False,
            )
        if name == "cmaes":
            return optuna.samplers.CmaEsSampler(
                seed=seed,
                n_startup_trials=options.get("startup_trials", 1),
                sigma0=options.get("sigma0"),
                popsize=options.get("population"),
                warn_independent_sampling=False,
            )
        if name == "nsgaii":
            return optuna.samplers.NSGAIISampler(
                seed=seed,
                population_size=options.get("population", 50),
                mutation_prob=options.get("mutation_prob"),
                crossover_prob=options.get("crossover_prob", 0.9),
            )
    raise InputError(f"There is no sampler {name!r}.")


def _check(study: Study, name: str) -> None:
    if name == "gp":
        _require("torch", "gp", "pip install torch, or use the sampler tpe")
        _require("scipy", "gp", "pip install scipy, or use the sampler tpe")
    if name == "cmaes":
        _require("cmaes", "cmaes", "pip install cmaes, or use the sampler tpe")
        if study.is_multi_objective:
            raise InputError(
                "The sampler cmaes optimises one objective.", "Use nsgaii or tpe for several."
            )
        choices = [p.name for p in study.space if p.type == "categorical"]
        if choices:
            raise InputError(
                f"The sampler cmaes takes numbers only, and {', '.join(choices)} is categorical.",
                "Use the sampler tpe, or make it an int or a float.",
            )


def _require(module: str, sampler: str, advice: str) -> None:
    if find_spec(module) is None:
        raise SweepError(
            f"The sampler {sampler} needs the package {module}, which is not installed here.",
            advice[0].upper() + advice[1:] + ".",
        )


def build_pruner(study: Study) -> Any:
    """Return the Optuna pruner of a study.

    Raises:
        InputError: A pruner of this name does not exist, or its options contradict each other.
    """
    import optuna

    name, options = study.pruner.type, dict(study.pruner.options)
    pruners = optuna.pruners
    try:
        with _silence():
            if name == "none":
                return pruners.NopPruner()
            if name in ("median", "percentile"):
                return pruners.PercentilePruner(
                    50.0 if name == "median" else float(options["percentile"]),
                    n_startup_trials=options.get("startup_trials", 5),
                    n_warmup_steps=options.get("min_resource", 0),
                    interval_steps=options.get("interval", 1),
                )
            if name == "asha":
                return pruners.SuccessiveHalvingPruner(
                    min_resource=options.get("min_resource", 1),
                    reduction_factor=options.get("reduction_factor", 3),
                    min_early_stopping_rate=options.get("min_early_stopping_rate", 0),
                )
            if name == "hyperband":
                return pruners.HyperbandPruner(
                    min_resource=options.get("min_resource", 1),
                    max_resource=options.get("max_resource", "auto"),
                    reduction_factor=options.get("reduction_factor", 3),
                )
            if name == "threshold":
                return pruners.ThresholdPruner(
                    lower=options.get("lower"),
                    upper=options.get("upper"),
                    n_warmup_steps=options.get("warmup", 0),
                    interval_steps=options.get("interval", 1),
                )
            if name == "patient":
                return pruners.PatientPruner(
                    _held_back(study, options.get("pruner")),
                    patience=options["patience"],
                    min_delta=options.get("min_delta", 0.0),
                )
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"The pruner {name} cannot be made: {error}.") from error
    raise InputError(f"There is no pruner {name!r}.")


@contextmanager
def _silence() -> Iterator[None]:
    """Keep back what Optuna warns of when it is asked for what the study file asks for."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings(
            "ignore", message=".*`sigma0` has been deprecated", category=FutureWarning
        )
        yield


def _held_back(study: Study, nested: Mapping[str, Any] | None) -> Any:
    """Return the pruner that a patient one holds back, or None: patience alone then stops."""
    if nested is None:
        return None
    options = {name: value for name, value in nested.items() if name != "type"}
    return build_pruner(dataclasses.replace(study, pruner=Choice(nested["type"], options)))
