"""``prior`` of a parameter, as a study file has it."""

from __future__ import annotations

import dataclasses

from sweep.core.space import Prior
from sweep.core.study import Study
from sweep.studyfile import changes, loads
from sweep.studyfile.keys import STUDY

TEXT = """name: s
command: t {config}
objective: {metric: a, direction: maximize}
trials: 4
space:
  lr: {type: float, low: 1e-5, high: 1, log: true, prior: {center: 3e-4, spread: 3}}
  n: {type: int, low: 1, high: 9, prior: {center: 4, spread: 2}}
  opt: {type: categorical, choices: [sgd, adam], prior: {weights: [1, 2.5]}}
  plain: {type: int, low: 1, high: 9}
"""


def test_priors_are_read() -> None:
    study = loads(TEXT, "s.yaml")
    assert [study.space.get(name).prior for name in ("lr", "n", "opt", "plain")] == [
        Prior(3e-4, 3.0),
        Prior(4.0, 2.0),
        Prior(weights=(1.0, 2.5)),
        None,
    ]
    assert Study.from_json(study.to_json()) == study


def test_a_study_without_is_read_as_before() -> None:
    study = loads(TEXT, "s.yaml")
    text = study.to_json()
    none = text.replace(',\n    "prior": null', "")
    assert none != text
    assert Study.from_json(none) == study


def test_one_place_may_be_set_from_the_command_line() -> None:
    study = loads(TEXT, "s.yaml", ["space.lr.prior.spread=10", "space.opt.prior.weights=[3, 1]"])
    assert study.space.get("lr").prior == Prior(3e-4, 10.0)
    assert study.space.get("opt").prior == Prior(weights=(3.0, 1.0))


def test_a_changed_prior_is_another_study() -> None:
    """Its start has been laid out by the first."""
    before = loads(TEXT, "s.yaml")
    after = loads(TEXT, "s.yaml", ["space.lr.prior.center=0.01"])
    allowed, refused = changes(before, dataclasses.replace(after, trials=9))
    assert allowed == ["trials was 4 and is now 9."]
    assert refused == ["space.lr.prior.center was 0.0003 and is now 0.01."]


def test_the_schema_has_it() -> None:
    kinds = STUDY.schema()["properties"]["space"]["additionalProperties"]["anyOf"]
    prior = kinds[0]["properties"]["prior"]
    assert prior["required"] == ["center", "spread"] and not prior["additionalProperties"]
    assert kinds[2]["properties"]["prior"]["required"] == ["weights"]
