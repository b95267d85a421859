"""Where a study has secrets that sweep does not take out, it says so."""

from __future__ import annotations

import pytest

from sweep.core.secret_arguments import notes, plain_places
from sweep.core.space import Space
from sweep.core.study import Environment, Slurm, Study


def make(**more: object) -> Study:
    return Study(name="s", command=("x",), objectives=(), space=Space(()), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "places"),
    [
        ({"fixed": {"api_key": "abc", "wandb.token": "x"}}, ["fixed.api_key", "fixed.wandb.token"]),
        ({"fixed": {"max_tokens": 5, "keys": "a", "token": None, "epochs": 3}}, []),
        (
            {"slurm": Slurm(setup=("module load x", "export HF_TOKEN=abc A=1"))},
            ["slurm.setup: HF_TOKEN"],
        ),
        (
            {"environment": Environment(setup=("WANDB_API_KEY='abc' x",))},
            ["environment.setup: WANDB_API_KEY"],
        ),
        ({"slurm": Slurm(setup=('export HF_TOKEN="$TOKEN" B_KEY=$(cat f) C_KEY=',))}, []),
    ],
)
def test_secrets_beside_the_command_are_named(more: dict[str, object], places: list[str]) -> None:
    """By their names; what a variable or a file gives is no secret of the study file's."""
    study = make(**more)
    assert plain_places(study) == places
    said = notes(study)
    assert [all(place in line for place in places) for line in said] == [True] * bool(places)
    assert "abc" not in "".join(said)
