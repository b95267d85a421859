"""A study's sampler and pruner as Optuna's objects. Options are named as in the study file."""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from sweep.core.errors import InputError, SweepError
from sweep.core.study import Choice, Study

# What pruner: auto stands for. With a first rung that is late enough it stops most trials and
# misleads the sampler least; `python -m benchmarks.search pruners` compares.
AUTO_PRUNER = "asha"

STARTUP = 10  # trials from which a sampler begins to learn, unless the study says otherwise
SHARE = 10  # nor before this part of the longest run

JOINT_WIDTH = 32  # trials at once above which TPE models one parameter at a time

# Above these a Gaussian process costs too much or knows too little.
GP_PARAMETERS = 8
GP_TRIALS = 200
GP_TRIALS_OF_TWO = 100  # with two objectives, where a proposal costs more

# Complete trials that it learns from, at the most: a proposal's time grows with them, and stays
# within a second so. OptunaHub's AutoSampler leaves it for another sampler at 250.
GP_MOST = 300


def choose(study: Study) -> tuple[str, str]:
    """Return which sampler a study uses, and why, in words for people; auto is resolved.

    A Gaussian process is the best on smooth spaces of a few parameters, numbers or categories, and
    no worse than TPE with noise and on learning curves: `python -m benchmarks.search samplers`
    compares. Taking turns with TPE gave up half of the gain. With two objectives it comes nearer to
    the front in spaces of numbers: `python -m benchmarks.search_objectives` compares.

    Returns:
        (name, reason).
    """
    name = study.sampler.type
    if name != "auto":
        return name, "as the study file says"
    if study.is_multi_objective and (len(study.objectives) > 2 or study.constraints):
        return "tpe", "there are several objectives"
    if any(p.when for p in study.space):
        return "tpe", "the space has conditions"
    if not study.space or len(study.space) > GP_PARAMETERS:
        return "tpe", f"the space has not 1 to {GP_PARAMETERS} parameters"
    if study.is_multi_objective and any(p.type == "categorical" for p in study.space):
        return "tpe", "there are several objectives and a parameter that is no number"
    if study.trials > most_gp_trials(study):
        return "tpe", f"there are more than {most_gp_trials(study)} trials"
    if study.pruner.type != "none":
        return "tpe", "a pruner stops trials, and gp learns from complete ones alone"
    if not all(find_spec(package) for package in ("torch", "scipy")):
        return "tpe", "torch and SciPy are not installed here; with them it would be gp"
    return "gp", f"the space has {len(study.space)} parameters and no conditions"


def most_gp_trials(study: Study) -> int:
    """Return up to how many trials a study's own choice may be a Gaussian process."""
    return GP_TRIALS_OF_TWO if study.is_multi_objective else GP_TRIALS


def takes_long(study: Study) -> bool:
    """Tell whether a study's sampler takes seconds to bring in: a Gaussian process needs torch.

    Not with ``auto``, which has tpe propose where a slot would wait.
    """
    return study.sampler.type == "gp"


def is_there() -> bool:
    """Tell whether this process has brought in what a Gaussian process needs."""
    return "torch" in sys.modules


def build_sampler(study: Study, seed: int, earlier: Sequence[Any] = ()) -> Any:
    """Return the Optuna sampler of a study.

    For designs that need no results (grid, random, qmc) it is the random one: what those propose is
    ``design``'s affair.

    Args:
        seed: Of this proposal: workers with one seed would all propose the same point.
        earlier: Trials of an earlier study, for CMA-ES, which sees none but those it has proposed.

    Raises:
        InputError: The sampler cannot search this space.
        SweepError: A package that the sampler needs is not installed.
    """
    import optuna

    name = choose(study)[0]
    check(study, optuna.__version__)
    options = dict(study.sampler.options) if study.sampler.type != "auto" else {}
    with silence():
        if name in ("random", "grid", "qmc"):
            return optuna.samplers.RandomSampler(seed=seed)
        if name == "tpe":
            return optuna.samplers.TPESampler(
                seed=seed,
                n_startup_trials=options.get("startup_trials", STARTUP),
                n_ei_candidates=options.get("candidates", 24),
                multivariate=options.get("multivariate", _is_joint(study)),
                constant_liar=True,
            )
        if name == "gp":
            return optuna.samplers.GPSampler(
                seed=seed,
                n_startup_trials=options.get("startup_trials", STARTUP),
                deterministic_objective=options.get("deterministic", False),
                warn_independent_sampling=False,
            )
        if name == "cmaes":
            return optuna.samplers.CmaEsSampler(
                seed=seed,
                n_startup_trials=options.get("startup_trials", 1),
                sigma0=options.get("sigma0"),
                source_trials=_sources(study, earlier),
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


def _is_joint(study: Study) -> bool:
    """Tell whether TPE models all parameters together, which the study file leaves open.

    As Optuna does, where few run at once; one parameter at a time is better where many do:
    `python -m benchmarks.search samplers` compares at 1, 20 and 100 at once.
    """
    return not study.is_multi_objective and study.parallel <= JOINT_WIDTH


LEAST_SOURCES = 10  # of which CMA-ES takes the best tenth


def _sources(study: Study, earlier: Sequence[Any]) -> list[Any] | None:
    """Return an earlier study's trials as CMA-ES takes them; None where there are none.

    Without parameters that have one value only, which it leaves out, and at least so many that the
    best of them is its best tenth.
    """
    if not earlier:
        return None
    found = []
    for trial in earlier:
        trial = copy.copy(trial)
        varied = {n: d for n, d in trial.distributions.items() if not d.single()}
        trial.params = {name: trial.params[name] for name in varied}
        trial.distributions = varied
        found.append(trial)
    return found * math.ceil(LEAST_SOURCES / len(found)) if len(found) < LEAST_SOURCES else found


def check(study: Study, optuna_version: str) -> None:
    """Refuse a study whose sampler cannot work here, or cannot search its space.

    Args:
        optuna_version: Of the Optuna that is installed here, as 5.1.0.

    Raises:
        InputError: The sampler cannot search this space.
        SweepError: A package that the sampler needs is not installed, or is too old.
    """
    if study.constraints and int(optuna_version.split(".")[0]) < 5:
        raise SweepError(
            f"Constraints need Optuna 5, and this is {optuna_version}.", "pip install -U optuna"
        )
    name = choose(study)[0]
    if name == "qmc":
        require("scipy", "sampler qmc", "pip install scipy, or use the sampler random")
    if name == "gp":
        require("torch", "sampler gp", "pip install torch, or use the sampler tpe")
        require("scipy", "sampler gp", "pip install scipy, or use the sampler tpe")
    if name == "cmaes":
        require("cmaes", "sampler cmaes", "pip install cmaes, or use the sampler tpe")
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


def require(module: str, what: str, advice: str) -> None:
    """Raises: SweepError: A package that something needs is not installed."""
    if find_spec(module) is None:
        raise SweepError(
            f"The {what} needs the package {module}, which is not installed here.",
            advice[0].upper() + advice[1:] + ".",
        )


def build_pruner(study: Study, first: int = 0) -> Any:
    """Return the Optuna pruner of a study.

    Args:
        first: What a min_resource that the study leaves open is.

    Raises:
        InputError: A pruner of this name does not exist, or its options contradict each other.
    """
    import optuna

    name, options = study.pruner.type, dict(study.pruner.options)
    if name == "auto":
        name = AUTO_PRUNER
    if options.get("min_resource", "auto") == "auto":
        options["min_resource"] = first
    pruners = optuna.pruners
    try:
        with silence():
            if name in ("none", "promotion"):  # a paused trial is none of Optuna's affair
                return pruners.NopPruner()
            if name in ("median", "percentile"):
                return pruners.PercentilePruner(
                    50.0 if name == "median" else float(options["percentile"]),
                    n_startup_trials=options.get("startup_trials", 5),
                    n_warmup_steps=options["min_resource"],
                    interval_steps=options.get("interval", 1),
                )
            if name == "asha":
                return pruners.SuccessiveHalvingPruner(
                    min_resource=max(1, options["min_resource"]),
                    reduction_factor=options.get("reduction_factor", 3),
                    min_early_stopping_rate=options.get("min_early_stopping_rate", 0),
                )
            if name == "hyperband":
                return pruners.HyperbandPruner(
                    min_resource=max(1, options["min_resource"]),
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
                    _held_back(study, options.get("pruner"), first),
                    patience=options["patience"],
                    min_delta=options.get("min_delta", 0.0),
                )
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"The pruner {name} cannot be made: {error}.") from error
    raise InputError(f"There is no pruner {name!r}.")


@contextmanager
def silence() -> Iterator[None]:
    """Keep back what Optuna warns of when it is asked for what the study file asks for."""
    with quiet():
        warnings.filterwarnings(
            "ignore", message=".*`sigma0` has been deprecated", category=FutureWarning
        )
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Let a Gaussian process use one thread: its matrices are small, and training runs beside."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _held_back(study: Study, nested: Mapping[str, Any] | None, first: int) -> Any:
    """Return the pruner that a patient one holds back, or None: patience alone then stops."""
    if nested is None:
        return None
    options = {name: value for name, value in nested.items() if name != "type"}
    return build_pruner(dataclasses.replace(study, pruner=Choice(nested["type"], options)), first)


def kept(known: list[tuple[Any, Any]], owner: Any, make: Callable[[], Any]) -> Any:
    """Return what was made for an owner, anew where another one was the last."""
    if not known or known[0][0] is not owner:
        known[:] = [(owner, make())]
    return known[0][1]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back Optuna's experimental warnings while it does what the study file asks for."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield
