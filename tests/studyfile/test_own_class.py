"""A sampler or pruner of one's own in a study file."""

from __future__ import annotations

import pytest

from sweep.core.errors import StudyFileError
from sweep.core.study import Choice, Study
from sweep.studyfile import loads
from sweep.studyfile.keys import STUDY

BASE = """name: s
command: t {config}
objective: {metric: a, direction: maximize}
trials: 4
space: {x: {type: float, low: 0, high: 1}}
"""


def read(text: str) -> Study:
    return loads(BASE + text, "s.yaml")


def test_a_class_and_its_arguments() -> None:
    study = read("sampler: {type: 'a.b:Mine', time_limit: 2min, sizes: [1, 2], pruner: {x: 1}}\n")
    assert study.sampler == Choice(
        "a.b:Mine", {"arguments": {"sizes": [1, 2], "pruner": {"x": 1}}, "time_limit_s": 120}
    )
    assert study.sampler.is_own and not study.pruner.is_own
    assert Study.from_json(study.to_json()) == study


def test_a_name_alone() -> None:
    study = read("pruner: 'mine:Half'\n")
    assert study.pruner == Choice("mine:Half", {"arguments": {}, "time_limit_s": 60})


def test_one_of_optunahub() -> None:
    """Its registry, revision and class are none of its arguments."""
    study = read(
        "sampler: 'optunahub:auto_sampler'\n"
        "pruner: {type: 'optunahub:never', registry: /r, revision: v1, class: N, k: 2}\n"
    )
    public = "https://github.com/optuna/optunahub-registry"
    assert study.sampler.options == {
        "arguments": {},
        "time_limit_s": 60,
        "registry": public,
        "revision": "main",
        "class": "",
    }
    assert study.sampler.is_hub and study.sampler.is_own
    assert study.pruner.options == {
        "arguments": {"k": 2},
        "time_limit_s": 60,
        "registry": "/r",
        "revision": "v1",
        "class": "N",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sampler: 'optunahub:a/b'", "sampler: must be optunahub: and a name of its registry"),
        ("sampler: {type: 'optunahub:a', revision: 3}", "sampler.revision: must be text"),
        ("sampler: {type: 'optunahub:a', registry: '--x'}", "sampler.registry: must be text"),
        ("sampler: 'mine: Half'", 'sampler: must be package.module:Class (got "mine: Half")'),
        ("sampler: {type: '1:Half'}", "sampler.type: must be package.module:Class"),
        ("sampler: {type: 'm:A', time_limit: 5}", "sampler.time_limit: must be a time with a unit"),
        ("sampler: {type: 'm:A', a-b: 5}", "sampler.a-b: must be named as an argument"),
        ("sampler: {type: 'm:A', a: [.inf]}", "sampler.a: must be finite"),
        ("warm_start: old\nsampler: 'm:A'", "which is shown this study alone"),
        ("sampler: tp", "sampler: must be auto, grid"),
    ],
)
def test_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(StudyFileError) as caught:
        read(text + "\n")
    assert message in str(caught.value), str(caught.value)


def test_the_schema_has_both_forms() -> None:
    forms = STUDY.schema()["properties"]["sampler"]["anyOf"]
    assert sum("pattern" in form for form in forms) == 1
    assert any("pattern" in form.get("properties", {}).get("type", {}) for form in forms)
