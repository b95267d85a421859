"""Samplers and pruners, and the options of each."""

from __future__ import annotations

from sweep.studyfile.own_class import OwnClass
from sweep.studyfile.rules import Boolean, Real, Whole, Word, meaning
from sweep.studyfile.sections import REQUIRED, Key, Variant

Keys = dict[str, Key]
_STARTUP_ALIASES = "n_startup_trials startup warmup_trials"

STARTUP = {
    "startup_trials": Key(
        Whole(0, 100_000),
        "Random trials before it starts to choose.",
        aliases=_STARTUP_ALIASES,
        default=10,
    )
}
PROBABILITY = Real(0, 1)
SAMPLERS: dict[str, Keys] = {
    "auto": {},
    "grid": {},
    "random": {},
    "qmc": {
        "sequence": Key(
            Word(("sobol", "halton")), "The sequence.", aliases="qmc_type kind", default="sobol"
        ),
        "scramble": Key(Boolean(), "Scramble it by the seed.", default=True),
    },
    "tpe": STARTUP
    | {
        "candidates": Key(
            Whole(1, 100_000),
            "Candidates that it compares for each proposal.",
            aliases="n_ei_candidates ei_candidates",
            default=24,
        ),
        "multivariate": Key(
            Boolean(),
            "Model all parameters together. Absent: where the objective is one and at most 32 run "
            "at once.",
            example=True,
        ),
    },
    "gp": STARTUP
    | {
        "deterministic": Key(
            Boolean(),
            "The objective has no noise.",
            aliases="deterministic_objective",
            default=False,
        )
    },
    "cmaes": {
        "startup_trials": Key(
            Whole(0, 100_000),
            "Random trials before it starts to choose.",
            aliases=_STARTUP_ALIASES,
            default=1,
        ),
        "sigma0": Key(
            Real(above=0),
            "First step size; absent: a sixth of the smallest range.",
            example=0.3,
            aliases="sigma",
        ),
        "population": Key(
            Whole(2, 100_000),
            "Trials of a generation; absent: by the number of parameters.",
            example=16,
            aliases="popsize population_size",
        ),
    },
    "nsgaii": {
        "population": Key(
            Whole(2, 100_000),
            "Trials of a generation.",
            aliases="population_size popsize",
            default=50,
        ),
        "mutation_prob": Key(
            PROBABILITY,
            "Probability of a mutation; absent: 1 / parameters.",
            example=0.1,
            aliases="mutation",
        ),
        "crossover_prob": Key(
            PROBABILITY, "Probability of a crossover.", aliases="crossover", default=0.9
        ),
    },
}

_AUTO = {"auto": "auto"}
MIN_RESOURCE = {
    "min_resource": Key(
        Whole(0, 10**9, _AUTO),
        "No trial is stopped before this amount; auto: before its third report, and a tenth of the "
        "longest trial.",
        example=3,
        aliases="n_warmup_steps warmup_steps warmup min_steps",
        default="auto",
    )
}
INTERVAL = {
    "interval": Key(
        Whole(1, 10**9), "Amount between decisions.", aliases="interval_steps", default=1
    )
}
FINISHED = {
    "startup_trials": Key(
        Whole(0, 100_000),
        "Trials to finish before any is stopped.",
        aliases=_STARTUP_ALIASES,
        default=5,
    )
}
REDUCTION = {
    "reduction_factor": Key(
        Whole(2, 100),
        "One of so many trials goes on from each rung.",
        aliases="eta factor",
        default=3,
    )
}
FIRST_RUNG = {
    "min_resource": Key(
        Whole(1, 10**9, _AUTO),
        "Amount of the first rung: no trial is stopped before. auto: a tenth of the first complete "
        "trial, and its third report at least; until one is complete none is stopped.",
        example=3,
        aliases="min_iter grace_period min_t",
        default="auto",
    )
}
RESOURCE = {
    "resource": Key(
        Word(("steps", "epochs", "seconds")),
        "What amounts count: the steps that are reported, the metric epoch that is reported "
        "beside, or seconds of training.",
        example="epochs",
        aliases="unit time_attr resource_attr",
        default="steps",
    )
}
PRUNERS: dict[str, Keys] = {
    "none": {},
    "auto": RESOURCE,
    "median": MIN_RESOURCE | FINISHED | INTERVAL | RESOURCE,
    "percentile": {
        "percentile": Key(
            Real(0, 100),
            "A trial outside the best so many per cent is stopped.",
            example=25,
            default=REQUIRED,
        )
    }
    | MIN_RESOURCE
    | FINISHED
    | INTERVAL
    | RESOURCE,
    "asha": FIRST_RUNG
    | REDUCTION
    | {"min_early_stopping_rate": Key(Whole(0, 100), "Rungs to leave out at the start.", default=0)}
    | RESOURCE,
    "hyperband": FIRST_RUNG
    | {
        "max_resource": Key(
            Whole(1, 10**9, {"auto": "auto"}),
            "Amount at which trials are complete; auto: the highest that was reported.",
            example=27,
            aliases="max_iter max_t",
            default="auto",
        )
    }
    | REDUCTION
    | RESOURCE,
    "promotion": {
        "max_resource": Key(
            Whole(2, 10**9),
            "Amount at which trials are complete.",
            example=27,
            aliases="max_iter max_t epochs",
            default=REQUIRED,
        ),
        "min_resource": Key(
            Whole(1, 10**9, {"auto": "auto"}),
            "Amount of the first rung, at which each trial pauses; auto: a tenth of "
            "max_resource, and at least 3.",
            example=3,
            aliases="min_iter grace_period min_t",
            default="auto",
        ),
    }
    | REDUCTION
    | RESOURCE,
    "threshold": {
        "lower": Key(Real(), "A trial whose metric falls below is stopped.", example=0.1),
        "upper": Key(Real(), "A trial whose metric rises above is stopped.", example=10.0),
        "warmup": Key(
            Whole(0, 10**9),
            "No trial is stopped before this amount.",
            example=3,
            aliases="n_warmup_steps warmup_steps min_resource",
            default=0,
        ),
    }
    | INTERVAL
    | RESOURCE,
    "patient": {
        "patience": Key(
            Whole(0, 10**9),
            "Steps without improvement that are let pass.",
            example=5,
            default=REQUIRED,
        ),
        "min_delta": Key(Real(0), "The least improvement that counts.", example=0.001, default=0.0),
    }
    | RESOURCE,
}

_ALONE = ("none", "auto", "patient", "promotion")
_PRUNER_MEANT = meaning(
    asha="sha successive_halving successivehalving halving",
    hyperband="bohb",
    promotion="pause promote pasha",
    auto="default true on",
    none="nop off false null",
)
_HELD_BACK = {
    kind: {name: key for name, key in keys.items() if name not in RESOURCE}
    for kind, keys in PRUNERS.items()
    if kind not in _ALONE
}
PRUNERS["patient"] |= {
    "pruner": Key(
        Variant("pruner", _HELD_BACK, _PRUNER_MEANT, nested=True),
        "The pruner that it holds back; absent: it stops by patience alone.",
        example={"type": "median"},
    )
}
PRUNER = Variant("pruner", PRUNERS, _PRUNER_MEANT, own=OwnClass("pruner"))
SAMPLER = Variant(
    "sampler",
    SAMPLERS,
    meaning(
        tpe="bayes bayesian optuna",
        grid="gridsearch",
        qmc="sobol halton quasirandom quasi-random",
        cmaes="cma-es cma",
        nsgaii="nsga2 nsga-ii nsga genetic",
        gp="gaussian gaussian_process",
        auto="default",
    ),
    own=OwnClass("sampler"),
)

MIN_TRIALS = {
    "min_trials": Key(
        Whole(20, 100_000),
        "Complete trials before it judges.",
        example=40,
        aliases="min_n_trials startup_trials",
        default=30,
    )
}
TERMINATORS: dict[str, Keys] = {
    "none": {},
    "emmr": MIN_TRIALS
    | {
        "deterministic": Key(
            Boolean(),
            "The objective has no noise.",
            aliases="deterministic_objective",
            default=False,
        )
    },
    "regret": MIN_TRIALS,
}
TERMINATOR = Variant(
    "terminator",
    TERMINATORS,
    meaning(emmr="true on auto optuna", regret="regret_bound regretbound", none="off false null"),
)
