"""Samplers and pruners, and the options of each."""

from __future__ import annotations

from sweep.studyfile.rules import Flag, Real, Whole, Word
from sweep.studyfile.sections import REQUIRED, Key, Variant

STARTUP = Key("startup_trials", Whole(0, 100_000), "Random trials before it starts to choose.", 10,
              10, aliases=("n_startup_trials", "startup", "warmup_trials"))  # fmt: skip
PROBABILITY = Real(0, 1)
SAMPLERS: dict[str, tuple[Key, ...]] = {
    "auto": (),
    "grid": (),
    "random": (),
    "qmc": (
        Key("sequence", Word(("sobol", "halton")), "The sequence.", "sobol", "sobol",
            aliases=("qmc_type", "kind")),
        Key("scramble", Flag(), "Scramble it by the seed.", True, True),
    ),
    "tpe": (
        STARTUP,
        Key("candidates", Whole(1, 100_000), "Candidates that it compares for each proposal.", 24,
            24, aliases=("n_ei_candidates", "ei_candidates")),
        Key("multivariate", Flag(), "Model all parameters together.", False, False),
    ),
    "gp": (
        STARTUP,
        Key("deterministic", Flag(), "The objective has no noise.", False, False,
            aliases=("deterministic_objective",)),
    ),
    "cmaes": (
        Key("startup_trials", Whole(0, 100_000), "Random trials before it starts to choose.", 1, 1,
            aliases=STARTUP.aliases),
        Key("sigma0", Real(above=0), "First step size; absent: a sixth of the smallest range.",
            None, 0.3, aliases=("sigma",)),
        Key("population", Whole(2, 100_000), "Trials of a generation; absent: by the number of "
            "parameters.", None, 16, aliases=("popsize", "population_size")),
    ),
    "nsgaii": (
        Key("population", Whole(2, 100_000), "Trials of a generation.", 50, 50,
            aliases=("population_size", "popsize")),
        Key("mutation_prob", PROBABILITY, "Probability of a mutation; absent: 1 / parameters.",
            None, 0.1, aliases=("mutation",)),
        Key("crossover_prob", PROBABILITY, "Probability of a crossover.", 0.9, 0.9,
            aliases=("crossover",)),
    ),
}  # fmt: skip

MIN_RESOURCE = Key("min_resource", Whole(0, 10**9), "No trial is stopped before this step.", 0, 3,
                   aliases=("n_warmup_steps", "warmup_steps", "warmup", "min_steps"))  # fmt: skip
INTERVAL = Key("interval", Whole(1, 10**9), "Steps between decisions.", 1, 1,
               aliases=("interval_steps",))  # fmt: skip
FINISHED = Key("startup_trials", Whole(0, 100_000), "Trials to finish before any is stopped.", 5, 5,
               aliases=STARTUP.aliases)  # fmt: skip
REDUCTION = Key("reduction_factor", Whole(2, 100), "One of so many trials goes on from each rung.",
                3, 3, aliases=("eta", "factor"))  # fmt: skip
FIRST_RUNG = Key("min_resource", Whole(1, 10**9), "Step of the first rung: no trial is stopped "
                 "before.", 1, 3, aliases=("min_iter", "grace_period", "min_t"))  # fmt: skip
PRUNERS: dict[str, tuple[Key, ...]] = {
    "none": (),
    "median": (MIN_RESOURCE, FINISHED, INTERVAL),
    "percentile": (
        Key("percentile", Real(0, 100), "A trial outside the best so many per cent is stopped.",
            REQUIRED, 25),
        MIN_RESOURCE, FINISHED, INTERVAL,
    ),
    "asha": (
        FIRST_RUNG, REDUCTION,
        Key("min_early_stopping_rate", Whole(0, 100), "Rungs to leave out at the start.", 0, 0),
    ),
    "hyperband": (
        FIRST_RUNG,
        Key("max_resource", Whole(1, 10**9, {"auto": "auto"}), "Step at which trials are complete; "
            "auto: the highest that was reported.", "auto", 27, aliases=("max_iter", "max_t")),
        REDUCTION,
    ),
    "threshold": (
        Key("lower", Real(), "A trial whose metric falls below is stopped.", None, 0.1),
        Key("upper", Real(), "A trial whose metric rises above is stopped.", None, 10.0),
        Key("warmup", Whole(0, 10**9), "No trial is stopped before this step.", 0, 3,
            aliases=("n_warmup_steps", "warmup_steps", "min_resource")),
        INTERVAL,
    ),
    "patient": (
        Key("patience", Whole(0, 10**9), "Steps without improvement that are let pass.", REQUIRED,
            5),
        Key("min_delta", Real(0), "The least improvement that counts.", 0.0, 0.001),
    ),
}  # fmt: skip

PRUNER_MEANT = {
    "sha": "asha", "successive_halving": "asha", "successivehalving": "asha", "halving": "asha",
    "bohb": "hyperband", "nop": "none", "off": "none", "false": "none", "null": "none",
}  # fmt: skip
_HELD_BACK = {name: keys for name, keys in PRUNERS.items() if name not in ("none", "patient")}
PRUNERS["patient"] += (
    Key(
        "pruner", Variant("pruner", _HELD_BACK, PRUNER_MEANT, nested=True),
        "The pruner that it holds back; absent: it stops by patience alone.", None,
        {"type": "median"},
    ),
)  # fmt: skip
PRUNER = Variant("pruner", PRUNERS, PRUNER_MEANT)
SAMPLER = Variant(
    "sampler", SAMPLERS,
    {"bayes": "tpe", "bayesian": "tpe", "optuna": "tpe", "gridsearch": "grid", "sobol": "qmc",
     "halton": "qmc", "quasirandom": "qmc", "quasi-random": "qmc", "cma-es": "cmaes",
     "cma": "cmaes", "nsga2": "nsgaii", "nsga-ii": "nsgaii", "nsga": "nsgaii",
     "gaussian": "gp", "gaussian_process": "gp", "genetic": "nsgaii", "default": "auto"},
)  # fmt: skip

