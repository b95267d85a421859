"""Which sampler `auto` stands for, and what it says of it."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Constraint, Objective, Study
from sweep.search import samplers
from sweep.search.samplers import choose

LR = Parameter("lr", "float", low=1e-5, high=1e-1, log=True)
ACT = Parameter("act", "categorical", choices=("relu", "tanh"))
MOMENTUM = Parameter("momentum", "float", low=0.0, high=1.0, when={"act": ("relu",)})
TWO = (Objective("loss"), Objective("size"))
NINE = tuple(Parameter(f"x{i}", "float", low=0.0, high=1.0) for i in range(9))


def study(**changes: Any) -> Study:
    given: dict[str, Any] = {
        "name": "s",
        "command": ("true",),
        "objectives": (Objective("loss"),),
        "space": Space((LR, ACT)),
        "trials": 60,
        "sampler": Choice("auto"),
        "pruner": Choice("none"),
    }
    return Study(**given | changes)


@pytest.mark.parametrize(
    ("changes", "name", "why"),
    [
        ({}, "gp", "the space has 2 parameters and no conditions"),
        ({"trials": 200}, "gp", "the space has 2 parameters"),
        ({"trials": 201}, "tpe", "more than 200 trials"),
        ({"space": Space((LR, ACT, MOMENTUM))}, "tpe", "the space has conditions"),
        ({"space": Space(NINE[:8])}, "gp", "8 parameters"),
        ({"space": Space(NINE)}, "tpe", "not 1 to 8 parameters"),
        ({"space": Space(())}, "tpe", "not 1 to 8 parameters"),
        ({"pruner": Choice("asha")}, "tpe", "a pruner stops trials"),
        ({"objectives": TWO}, "tpe", "several objectives and a parameter that is no number"),
        ({"objectives": TWO, "space": Space(NINE[:8])}, "gp", "8 parameters"),
        ({"objectives": TWO, "space": Space((LR,)), "trials": 100}, "gp", "1 parameters"),
        ({"objectives": TWO, "space": Space((LR,)), "trials": 101}, "tpe", "more than 100 trials"),
        (
            {"objectives": TWO, "space": Space((LR,)), "constraints": (Constraint("m", max=1.0),)},
            *("tpe", "several objectives"),
        ),
        (
            {"objectives": (*TWO, Objective("time")), "space": Space((LR,))},
            *("tpe", "several objectives"),
        ),
        ({"sampler": Choice("qmc")}, "qmc", "as the study file says"),
    ],
)
def test_auto(
    changes: dict[str, Any], name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the space, the budget and what else the study asks for."""
    monkeypatch.setattr(samplers, "find_spec", lambda package: object())
    found, said = choose(study(**changes))
    assert (found, why in said) == (name, True), said


@pytest.mark.parametrize("missing", ["torch", "scipy"])
def test_auto_without_its_packages(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works, and says what would be better."""
    monkeypatch.setattr(
        samplers, "find_spec", lambda package: None if package == missing else object()
    )
    assert choose(study()) == (
        "tpe",
        "torch and SciPy are not installed here; with them it would be gp",
    )
