"""Random studies from a seed: what to search, how, with which budget, in which space.

A study is drawn wholly beforehand: the same seed and number give the same study.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.auditor import Facts

SAMPLERS = ("random", "random", "tpe", "tpe", "qmc", "grid", "cmaes", "nsgaii", "gp", "auto")
SAMPLERS_OF_SEVERAL = ("random", "tpe", "qmc", "nsgaii")
PRUNERS = ("none", "none", "median", "percentile", "asha", "hyperband", "promotion", "patient")
BUDGETS = ("none", "none", "none", "time", "target", "patience")
# What the studies of a form are made to have, by turns.
TURNS = (
    *("plain", "where", "prior", "replicates", "constraints", "several"),
    *("hyperband", "own", "grid", "qmc"),
)
MOST_SUM = (("lr", "x"), 1.1)  # what a study's ``where`` says: a third of the space is invalid
OWN_SAMPLER = "own_search:Nearer"  # of studies/scripts


@dataclass(frozen=True)
class Form:
    """How large studies are.

    Attributes:
        trials, parallel, epochs: Least and most.
        every: Epochs between two checkpoints.
        kills_per_minute: How often something is killed.
        events: Least and most of what else happens.
        patience_s: Without progress for so long, a user would launch again.
        samplers, budgets: Those that are drawn from.
        by_turns: Whether each study has one of TURNS, by its number.
        more_kills: Beside what is killed on the ground anyway.
    """

    name: str
    trials: tuple[int, int]
    parallel: tuple[int, int]
    epochs: tuple[int, int]
    epoch_s: float
    every: int
    kills_per_minute: float
    events: tuple[int, int]
    patience_s: float
    samplers: tuple[str, ...] = SAMPLERS
    budgets: tuple[str, ...] = BUDGETS
    by_turns: bool = False
    more_kills: tuple[str, ...] = ()


# gp and auto import torch, for seconds.
SHORT = Form(
    "short",
    trials=(4, 6),
    parallel=(2, 3),
    epochs=(6, 9),
    epoch_s=0.3,
    every=3,
    kills_per_minute=20.0,
    events=(1, 2),
    patience_s=45.0,
    samplers=tuple(name for name in SAMPLERS if name not in ("gp", "auto")),
)
# Trainings of 30 s and more, a checkpoint every 3 s.
LONG = Form(
    "long",
    trials=(6, 14),
    parallel=(3, 6),
    epochs=(30, 36),
    epoch_s=1.0,
    every=3,
    kills_per_minute=8.0,
    events=(2, 5),
    patience_s=200.0,
)
HUGE = Form(
    "huge",
    trials=(1000, 1000),
    parallel=(64, 80),
    epochs=(30, 36),
    epoch_s=1.0,
    every=3,
    kills_per_minute=20.0,
    events=(3, 6),
    patience_s=240.0,
    samplers=("random", "tpe", "qmc"),
    budgets=("none",),  # it shall be long
)
# Proposals are prepared ahead from four at once on; who prepares them is killed or held.
AHEAD = Form(
    "ahead",
    trials=(14, 20),
    parallel=(4, 5),
    epochs=(6, 9),
    epoch_s=0.5,
    every=3,
    kills_per_minute=25.0,
    events=(1, 3),
    patience_s=200.0,  # on Slurm what died is looked for after two minutes
    samplers=("tpe", "gp", "tpe", "auto"),
    budgets=("none", "none", "none", "patience"),
    by_turns=True,
    more_kills=("proposer",) * 6 + ("proposer held",) * 4,
)
FORMS = {form.name: form for form in (SHORT, LONG, HUGE, AHEAD)}


@dataclass(frozen=True)
class Drawn:
    """One study, as it was drawn.

    Attributes:
        keys: Of the study file, without what the place decides: command, executor, resources.
        most_trials: As many as the space has room for; None without a limit.
        replicates: Trainings that make a trial.
    """

    seed: int
    number: int
    form: Form
    keys: Mapping[str, Any] = field(repr=False)
    trials: int
    max_parallel: int
    epochs: int
    most_trials: int | None = None
    replicates: int = 1

    @property
    def name(self) -> str:
        return f"storm-{self.seed}-{self.number}"

    @property
    def total_epochs(self) -> int:
        """Epochs that all trials have together, if none ends early."""
        return self.trials * self.epochs * self.replicates

    @property
    def length_s(self) -> float:
        """How long it trains at best."""
        return self.total_epochs * self.form.epoch_s / self.max_parallel

    def facts(self, trials: int) -> Facts:
        """Return what the auditor is told, of a study that has so many trials in the end."""
        given = self.keys["objective"]
        objectives = given if isinstance(given, list) else [given]
        pruner = self.keys["pruner"]
        return Facts(
            name=self.name,
            trials=trials,
            max_parallel=self.max_parallel,
            epochs=self.epochs,
            every=self.form.every,
            objectives=objectives,
            constraints=self.keys.get("constraints", {}),
            prunes=pruner != "none",
            ends_early=any(key in self.keys for key in ("time", "target", "patience")),
            replicates=self.replicates,
            most_sum=MOST_SUM if "where" in self.keys else None,
        )

    def describe(self) -> str:
        """Return the study in a few lines."""
        dull = ("space", "retry", "keep", "grace")
        shown = {key: value for key, value in self.keys.items() if key not in dull}
        lines = [
            f"study {self.name} ({self.form.name}): {self.trials} trials of {self.epochs} epochs "
            f"of {self.form.epoch_s} s, {self.max_parallel} at once",
            f"  {json.dumps(shown)}",
        ]
        return "\n".join([*lines, f"  space {json.dumps(self.keys['space'])}"])


def draw_study(
    seed: int, number: int, form: Form, trials: int | None = None, replicates: int = 1
) -> Drawn:
    """Return the study of a seed and number; the same ones give the same study.

    Args:
        trials: So many, instead of a drawn number.
        replicates: Trainings that make a trial; with several, none is paused.
    """
    draw = random.Random(f"{seed}/{number}/study/{form.name}")
    if form.by_turns:
        return _in_turn(draw, seed, number, form, trials)
    drawn = draw.randint(*form.trials)
    trials = trials or drawn
    parallel, epochs = draw.randint(*form.parallel), draw.randint(*form.epochs)
    several = draw.random() < 0.2
    sampler = draw.choice(SAMPLERS_OF_SEVERAL if several else form.samplers)
    pruner = "none" if several else draw.choice(PRUNERS)
    if pruner == "promotion" and replicates > 1:
        pruner = "asha"
    budget = draw.choice(form.budgets)
    if several and budget in ("target", "patience"):
        budget = "none"
    objective = _objective(draw, several)
    space, size = _space(draw, sampler, trials)
    keys: dict[str, Any] = {
        "objective": objective,
        "space": space,
        "sampler": sampler,
        "pruner": _pruner(draw, pruner, epochs),
        "seed": draw.randrange(1000),
        "retry": {"max_attempts": 1000},  # what is killed here shall go on
        "keep": draw.choice((0, 2, 5)),
        "grace": "10s",
    }
    if draw.random() < 0.2 and not several:
        keys["constraints"] = {"latency": {"max": draw.randint(20, 70)}}
    at_best_s = trials * epochs * form.epoch_s / parallel
    if budget == "time":
        keys["time"] = f"{max(2, round(at_best_s * draw.uniform(0.3, 1.5)))}s"
    elif budget == "patience":
        keys["patience"] = draw.randint(max(2, trials // 3), trials)
    elif budget == "target":
        score = draw.uniform(0.4, 0.9)
        keys["target"] = round(score if objective["metric"] == "score" else 1 - score, 3)
    if replicates > 1:
        keys["replicates"] = replicates
    return Drawn(seed, number, form, keys, trials, parallel, epochs, size, replicates)


def _in_turn(draw: random.Random, seed: int, number: int, form: Form, trials: int | None) -> Drawn:
    """Return a study that has what it is its number's turn to have."""
    turn = TURNS[number % len(TURNS)]
    trials = trials or draw.randint(*form.trials)
    parallel, epochs = draw.randint(*form.parallel), draw.randint(*form.epochs)
    sampler = draw.choice(form.samplers)
    if turn == "several":
        sampler = "tpe"
    elif turn in ("grid", "qmc"):
        sampler = turn
    elif turn == "own":
        sampler = OWN_SAMPLER
    space: dict[str, Any] = {
        "x": {"type": "float", "low": 0.0, "high": 1.0},
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
    }
    size = None
    if turn == "grid":
        space, size = _space(draw, sampler, trials)
    keys: dict[str, Any] = {
        "objective": _objective(draw, turn == "several"),
        "space": space,
        "sampler": sampler,
        "pruner": "none",
        "seed": draw.randrange(1000),
        "retry": {"max_attempts": 1000},
        "keep": draw.choice((0, 2)),
        "grace": "10s",
    }
    replicates = 1
    if turn == "where":
        names, most = MOST_SUM
        keys["where"] = [f"{' + '.join(names)} <= {most}"]
    elif turn == "prior":
        space["x"]["prior"] = {"center": 0.35, "spread": 0.1}
        space["lr"]["prior"] = {"center": 0.3, "spread": 2}
        space["kind"]["prior"] = {"weights": [3, 1]}
    elif turn == "replicates":
        keys["replicates"] = replicates = 2
    elif turn == "constraints":
        keys["constraints"] = {"latency": {"max": draw.randint(20, 70)}}
    elif turn == "hyperband":
        keys["pruner"] = _pruner(draw, turn, epochs)
    if draw.choice(form.budgets) == "patience" and turn not in ("several", "replicates"):
        keys["patience"] = draw.randint(trials // 2, trials)
    return Drawn(seed, number, form, keys, trials, parallel, epochs, size, replicates)


def _objective(draw: random.Random, several: bool) -> Any:
    metric, direction = draw.choice((("score", "maximize"), ("loss", "minimize")))
    first = {"metric": metric, "direction": direction, "at": draw.choice(("best", "last"))}
    if not several:
        return first
    second = {"metric": "cost", "direction": "minimize", "at": draw.choice(("best", "last"))}
    return [first, second]


def _pruner(draw: random.Random, kind: str, epochs: int) -> Any:
    """Return a pruner that judges within so few epochs."""
    least = draw.randint(2, max(2, epochs // 5))
    options: dict[str, dict[str, Any]] = {
        "median": {"min_resource": least, "startup_trials": draw.randint(1, 3)},
        "percentile": {"percentile": draw.choice((25, 60)), "min_resource": least},
        "asha": {"min_resource": least, "reduction_factor": draw.choice((2, 3))},
        "hyperband": {"min_resource": least, "max_resource": epochs},
        "promotion": {"min_resource": least, "max_resource": epochs},
        "patient": {"patience": draw.randint(2, 4)},
    }
    return {"type": kind, **options[kind]} if kind in options else kind


def _space(draw: random.Random, sampler: str, trials: int) -> tuple[dict[str, Any], int | None]:
    """Return a space that the sampler takes, and how many points it has, where it is a grid."""
    if sampler == "grid":
        side = draw.randint(2, 4)
        points = -(-trials * 2 // side) + 1
        return {
            "kind": {"type": "categorical", "choices": ["a", "b", "c", "d"][:side]},
            "width": {"type": "int", "low": 1, "high": points},
        }, side * points
    numbers: dict[str, Any] = {
        "x": {"type": "float", "low": 0.0, "high": 1.0},
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "width": {"type": "int", "low": 1, "high": 8},
    }
    names = draw.sample(sorted(numbers), draw.randint(2, 3))
    space = {name: numbers[name] for name in names}
    if sampler == "cmaes":
        return space, None
    if draw.random() < 0.7:
        space["kind"] = {"type": "categorical", "choices": ["a", "b", "c"][: draw.randint(2, 3)]}
        if sampler not in ("gp", "auto") and draw.random() < 0.7:
            space["depth"] = {"type": "int", "low": 1, "high": 4, "when": {"kind": "a"}}
            if draw.random() < 0.5:
                decay = {"type": "float", "low": 0.0, "high": 0.5, "when": {"depth": [1, 2]}}
                space["decay"] = decay
    return space, None
