"""Designs under relations: every point keeps to them, evenly, and the first N never change."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sweep.core.errors import InputError
from sweep.core.space import Parameter, Prior, Space
from sweep.core.study import Choice, Objective, Study
from sweep.search import propose, valid
from sweep.search.design import fixed_design, spread_design
from sweep.search.propose import first_point, first_rows
from sweep.search.valid import Where, check_where, survey, valid_point

SPACE = Space(
    (
        Parameter("hidden", "int", low=8, high=128, step=8),
        Parameter("heads", "categorical", choices=(1, 2, 3, 5)),
        Parameter("optimizer", "categorical", choices=("sgd", "adam")),
        Parameter("momentum", "float", low=0.0, high=1.0, when={"optimizer": ("sgd",)}),
        Parameter("lr", "float", low=0.0, high=1.0),
    )
)
WHERE = ("hidden % heads == 0", "momentum <= lr", 'optimizer == "sgd" or lr * scale < 1')


def make(sampler: str, trials: int = 40, **more: Any) -> Study:
    given: dict[str, Any] = {
        "name": "s",
        "command": ("true",),
        "objectives": (Objective("m"),),
        "space": SPACE,
        "fixed": {"scale": 2},
        "where": WHERE,
        "trials": trials,
        "sampler": Choice(sampler),
    }
    return Study(**given | more)


def is_valid(row: dict[str, Any]) -> bool:
    momentum = row.get("momentum", 0.0)
    is_even = row["hidden"] % row["heads"] == 0
    return bool(
        is_even and momentum <= row["lr"] and (row["optimizer"] == "sgd" or row["lr"] < 0.5)
    )


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_designs_keep_to_them(sampler: str) -> None:
    """Also when N is raised: the first rows stay as they are."""
    rows = fixed_design(make(sampler))
    assert rows is not None and len(rows) == 40
    assert all(map(is_valid, rows))
    assert {"momentum" in row for row in rows} == {True, False}
    more = fixed_design(make(sampler, trials=150))
    assert more is not None and more[:40] == rows and all(map(is_valid, more))


def test_a_start_keeps_to_them() -> None:
    """And is spread evenly over what is left: each tenth of a range is met."""
    given = [make("tpe", trials=60, max_parallel=60, duplicates=d) for d in ("keep", "resample")]
    for study in given:
        rows = spread_design(study, 60)
        assert len(rows) == 60 and all(map(is_valid, rows))
    for study in given:  # after the others: the last survey is kept
        wide = dataclasses.replace(study, where=("lr <= hidden / 128",))
        drawn = [row["lr"] for row in spread_design(wide, 60) if row["hidden"] > 100]
        assert all(any(part <= lr * 4 < part + 1 for lr in drawn) for part in range(4))


def test_without_relations_nothing_changes() -> None:
    rows = fixed_design(make("random", where=()))
    assert rows is not None and not all(map(is_valid, rows))
    whole = fixed_design(make("random", where=("lr >= 0",)))
    assert whole == rows


def test_a_grid_has_its_valid_points() -> None:
    space = Space(SPACE.parameters[:2])
    with pytest.raises(InputError, match="points that keep to where, and 99 trials"):
        fixed_design(make("grid", trials=99, space=space, where=WHERE[:1]))
    count = sum(hidden % heads == 0 for hidden in range(8, 129, 8) for heads in (1, 2, 3, 5))
    rows = fixed_design(make("grid", trials=count, space=space, where=WHERE[:1]))
    assert rows is not None and len({tuple(row.values()) for row in rows}) == count
    assert all(row["hidden"] % row["heads"] == 0 for row in rows)


def test_a_point_is_completed_to_a_valid_one() -> None:
    points = ({"hidden": 8, "optimizer": "adam"}, {"heads": 5}, {"momentum": 0.9})
    for sampler in ("random", "qmc", "tpe"):
        study = make(sampler, points=points)
        found = fixed_design(study) or spread_design(study, 10)
        assert all(map(is_valid, found))
        assert [found[0]["hidden"], found[0]["optimizer"]] == [8, "adam"]
        assert found[1]["heads"] == 5
        assert found[2].get("momentum", 0.9) == 0.9


def test_a_point_that_none_completes_is_refused() -> None:
    study = make("random", where=("hidden <= 64 or lr > 2",), points=({"hidden": 128},))
    with pytest.raises(InputError, match=r"points\[0\] breaks where, .*hidden is 128"):
        fixed_design(study)


def test_launch_rows_and_the_first_point() -> None:
    study = make("tpe", max_parallel=5)
    assert all(len(row["params"]) >= 4 for row in first_rows(study, 5))
    assert is_valid(first_point(study))


def test_none_is_valid() -> None:
    """That is refused, with what is broken and how."""
    study = make("tpe", where=("hidden > 8 * 100", "lr / (hidden - hidden) > 1"))
    with pytest.raises(InputError) as caught:
        check_where(study)
    text = str(caught.value)
    assert "none of 10000 points" in text and "hidden > 8 * 100 is broken by 10000" in text
    assert "lr / (hidden - hidden) divides by zero" in text
    with pytest.raises(InputError, match="none of 10000"):
        fixed_design(make("random", where=("lr > 2",), trials=2))


def test_few_are_valid() -> None:
    """Below one in a hundred launch warns; above it does not."""
    assert check_where(make("tpe", where=("lr < 0.1",))) == ""
    assert check_where(make("grid", where=("lr > 2",))) == ""
    assert check_where(make("tpe", where=())) == ""
    text = check_where(make("tpe", where=("lr < 0.005",)))
    assert "of 10000 points by chance" in text and "lr < 0.005 is broken by 99" in text


def test_a_choice_that_is_never_left_is_said() -> None:
    """One that the relations forbid, or that they cannot be reckoned with."""
    layers = Parameter("layers", "categorical", choices=(1, 2, "auto", None))
    space = Space((layers, SPACE.get("hidden")))

    def said(*clauses: str) -> str:
        return check_where(make("tpe", space=space, where=clauses))

    text = said("layers > 1")
    assert text.startswith('where never leaves layers = 1, layers = "auto", layers = null: remove')
    assert said('layers == 2 or layers == "auto" or layers == 1 or hidden > 64') == ""
    assert "never leaves" not in said("hidden < 16")


def test_a_point_that_nothing_completes_is_found_by_check() -> None:
    """As a launch finds it, whatever the sampler."""
    study = make("tpe", where=("lr * hidden <= 4",), points=({"lr": 0.9},))
    with pytest.raises(InputError, match=r"points\[0\] breaks where, whatever completes it"):
        propose.check_design(study)
    propose.check_design(make("tpe", where=("lr * hidden <= 4",), points=({"lr": 0.1},)))
    propose.check_design(make("random", trials=5))


def test_priors_that_contradict_them() -> None:
    """It is said where nothing is drawn from the priors, or not their centre."""
    lr = Parameter("lr", "float", low=0.0, high=1.0, prior=Prior(0.9, 0.01))
    space = Space((lr, SPACE.get("hidden")))

    def said(*clauses: str) -> str:
        return check_where(make("tpe", space=space, where=clauses))

    assert said("lr < 0.95", "hidden > 100") == ""
    text = said("lr < 0.5")
    assert (
        "none of 1000 points from the priors keeps to it" in text and "lr < 0.5: lr is 0." in text
    )
    text = said("lr > 0.9")
    assert "the first trial is not at the priors' centers: lr > 0.9: lr is 0.9" in text
    text = said("lr < 0.005")
    assert "of 10000 points by chance" in text and "none of 1000 points from the priors" in text


def test_after_many_draws_a_known_point_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ones each time, and each of them in turn."""
    study = make("random", where=("lr < 0.005",), trials=30)
    known = [point["lr"] for point in survey(study).points]
    assert valid_point(study, 0, most=3) is None
    monkeypatch.setattr(valid, "MOST_DRAWS", 0)
    rows = fixed_design(study)
    assert rows == fixed_design(study)
    assert rows is not None and {row["lr"] for row in rows} <= set(known)
    assert len({row["lr"] for row in rows}) == min(30, len(known))


def test_what_breaks_is_told() -> None:
    where = Where(make("random"))
    row = {"hidden": 8, "heads": 3, "optimizer": "adam", "lr": 0.75}
    assert where.describe(row) == (
        'hidden % heads == 0: hidden is 8 and heads is 3; optimizer == "sgd" or lr * scale < 1: '
        'optimizer is "adam", lr is 0.75 and scale is 2'
    )
    assert not where.keeps(row) and Where(make("random", where=())).keeps(row)
