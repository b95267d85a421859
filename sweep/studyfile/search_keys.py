"""Samplers and pruners, and the options of each."""

from __future__ import annotations

from sweep.studyfile.rules import Flag, Real, Whole, Word
from sweep.studyfile.sections import REQUIRED, Key, Variant

STARTUP = Key(
    "startup_trials",
    Whole(0, 100_000),
    "Random trials before it starts to choose.",
    10,
    10,
    aliases=("n_startup_trials", "startup", "warmup_trials"),
)
PROBABILITY = Real(0, 1)
SAMPLERS: dict[str, tuple[Key, ...]] = {
    "auto": (),
    "grid": (),
    "random": (),
    "qmc": (
        Key(
            "sequence",
            Word(("sobol", "halton")),
            "The sequence.",
            "sobol",
            "sobol",
            aliases=("qmc_type", "kind"),
        ),
        Key("scramble", Flag(), "Scramble it by the seed.", True, True),
    ),
    "tpe": (
        STARTUP,
        Key(
            "candidates",
            Whole(1, 100_000),
            "Candidates that it compares for each proposal.",
            24,
            24,
            aliases=("n_ei_candidates", "ei_candidates"),
        ),
        Key("multivariate", Flag(), "Model all parameters together.", False, False),
    ),
    "gp": (
        STARTUP,
        Key(
            "deterministic",
            Flag(),
            "The objective has no noise.",
            False,
            False,
            aliases=("deterministic_objective",),
        ),
    ),
    "cmaes": (
        Key(
            "startup_trials",
            Whole(0, 100_000),
            "Random trials before it starts to choose.",
            1,
            1,
            aliases=STARTUP.aliases,
        ),
        Key(
            "sigma0",
            Real(above=0),
            "First step size; absent: a sixth of the smallest range.",
            None,
            0.3,
            aliases=("sigma",),
        ),
        Key(
            "population",
            Whole(2, 100_000),
            "Trials of a generation; absent: by the number of parameters.",
            None,
            16,
            aliases=("popsize", "population_size"),
        ),
    ),
    "nsgaii": (
        Key(
            "population",
            Whole(2, 100_000),
            "Trials of a generation.",
            50,
            50,
            aliases=("population_size", "popsize"),
        ),
        Key(
            "mutation_prob",
            PROBABILITY,
            "Probability of a mutation; absent: 1 / parameters.",
            None,
            0.1,
            aliases=("mutation",),
        ),
        Key(
            "crossover_prob",
            PROBABILITY,
            "Probability of a crossover.",
            0.9,
            0.9,
            aliases=("crossover",),
        ),
    ),
}

_AUTO = {"auto": "auto"}
MIN_RESOURCE = Key(
    "min_resource",
    Whole(0, 10**9, _AUTO),
    "No trial is stopped before this "
    "amount; auto: before its third report, and a tenth of the longest trial.",
    "auto",
    3,
    aliases=("n_warmup_steps", "warmup_steps", "warmup", "min_steps"),
)
INTERVAL = Key(
    "interval", Whole(1, 10**9), "Amount between decisions.", 1, 1, aliases=("interval_steps",)
)
FINISHED = Key(
    "startup_trials",
    Whole(0, 100_000),
    "Trials to finish before any is stopped.",
    5,
    5,
    aliases=STARTUP.aliases,
)
REDUCTION = Key(
    "reduction_factor",
    Whole(2, 100),
    "One of so many trials goes on from each rung.",
    3,
    3,
    aliases=("eta", "factor"),
)
FIRST_RUNG = Key(
    "min_resource",
    Whole(1, 10**9, _AUTO),
    "Amount of the first rung: no trial is "
    "stopped before. auto: a tenth of the first complete trial, and its third report "
    "at least; until one is complete none is stopped.",
    "auto",
    3,
    aliases=("min_iter", "grace_period", "min_t"),
)
RESOURCE = Key(
    "resource",
    Word(("steps", "epochs", "seconds")),
    "What amounts count: the steps "
    "that are reported, the metric epoch that is reported beside, or seconds of "
    "training.",
    "steps",
    "epochs",
    aliases=("unit", "time_attr", "resource_attr"),
)
PRUNERS: dict[str, tuple[Key, ...]] = {
    "none": (),
    "auto": (RESOURCE,),
    "median": (MIN_RESOURCE, FINISHED, INTERVAL, RESOURCE),
    "percentile": (
        Key(
            "percentile",
            Real(0, 100),
            "A trial outside the best so many per cent is stopped.",
            REQUIRED,
            25,
        ),
        MIN_RESOURCE,
        FINISHED,
        INTERVAL,
        RESOURCE,
    ),
    "asha": (
        FIRST_RUNG,
        REDUCTION,
        Key("min_early_stopping_rate", Whole(0, 100), "Rungs to leave out at the start.", 0, 0),
        RESOURCE,
    ),
    "hyperband": (
        FIRST_RUNG,
        Key(
            "max_resource",
            Whole(1, 10**9, {"auto": "auto"}),
            "Amount at which trials are complete; auto: the highest that was reported.",
            "auto",
            27,
            aliases=("max_iter", "max_t"),
        ),
        REDUCTION,
        RESOURCE,
    ),
    "promotion": (
        Key(
            "max_resource",
            Whole(2, 10**9),
            "Amount at which trials are complete.",
            REQUIRED,
            27,
            aliases=("max_iter", "max_t", "epochs"),
        ),
        Key(
            "min_resource",
            Whole(1, 10**9, {"auto": "auto"}),
            "Amount of the first rung, at which "
            "each trial pauses; auto: a tenth of max_resource, and at least 3.",
            "auto",
            3,
            aliases=("min_iter", "grace_period", "min_t"),
        ),
        REDUCTION,
        RESOURCE,
    ),
    "threshold": (
        Key("lower", Real(), "A trial whose metric falls below is stopped.", None, 0.1),
        Key("upper", Real(), "A trial whose metric rises above is stopped.", None, 10.0),
        Key(
            "warmup",
            Whole(0, 10**9),
            "No trial is stopped before this amount.",
            0,
            3,
            aliases=("n_warmup_steps", "warmup_steps", "min_resource"),
        ),
        INTERVAL,
        RESOURCE,
    ),
    "patient": (
        Key(
            "patience", Whole(0, 10**9), "Steps without improvement that are let pass.", REQUIRED, 5
        ),
        Key("min_delta", Real(0), "The least improvement that counts.", 0.0, 0.001),
        RESOURCE,
    ),
}

PRUNER_MEANT = {
    "sha": "asha",
    "successive_halving": "asha",
    "successivehalving": "asha",
    "halving": "asha",
    "bohb": "hyperband",
    "pause": "promotion",
    "promote": "promotion",
    "pasha": "promotion",
    "default": "auto",
    "true": "auto",
    "on": "auto",
    "nop": "none",
    "off": "none",
    "false": "none",
    "null": "none",
}
_ALONE = ("none", "auto", "patient", "promotion")
_HELD_BACK = {
    name: tuple(key for key in keys if key is not RESOURCE)
    for name, keys in PRUNERS.items()
    if name not in _ALONE
}
PRUNERS["patient"] += (
    Key(
        "pruner",
        Variant("pruner", _HELD_BACK, PRUNER_MEANT, nested=True),
        "The pruner that it holds back; absent: it stops by patience alone.",
        None,
        {"type": "median"},
    ),
)
PRUNER = Variant("pruner", PRUNERS, PRUNER_MEANT)
SAMPLER = Variant(
    "sampler",
    SAMPLERS,
    {
        "bayes": "tpe",
        "bayesian": "tpe",
        "optuna": "tpe",
        "gridsearch": "grid",
        "sobol": "qmc",
        "halton": "qmc",
        "quasirandom": "qmc",
        "quasi-random": "qmc",
        "cma-es": "cmaes",
        "cma": "cmaes",
        "nsga2": "nsgaii",
        "nsga-ii": "nsgaii",
        "nsga": "nsgaii",
        "gaussian": "gp",
        "gaussian_process": "gp",
        "genetic": "nsgaii",
        "default": "auto",
    },
)

MIN_TRIALS = Key(
    "min_trials",
    Whole(20, 100_000),
    "Complete trials before it judges.",
    30,
    40,
    aliases=("min_n_trials", "startup_trials"),
)
TERMINATORS: dict[str, tuple[Key, ...]] = {
    "none": (),
    "emmr": (
        MIN_TRIALS,
        Key(
            "deterministic",
            Flag(),
            "The objective has no noise.",
            False,
            False,
            aliases=("deterministic_objective",),
        ),
    ),
    "regret": (MIN_TRIALS,),
}
TERMINATOR = Variant(
    "terminator",
    TERMINATORS,
    {
        "true": "emmr",
        "on": "emmr",
        "auto": "emmr",
        "optuna": "emmr",
        "regret_bound": "regret",
        "regretbound": "regret",
        "off": "none",
        "false": "none",
        "null": "none",
    },
)
