"""Data sets in a study file: their forms, their names, where copies are kept."""

from __future__ import annotations

import dataclasses

import pytest

from sweep.core.errors import StudyFileError
from sweep.core.study import DataSet, Staging, Study
from sweep.studyfile import changes, json_schema, loads
from sweep.studyfile.data_keys import DATA_SET

HEAD = """\
name: s
command: python train.py --data {data.mnist} {params}
objective: {metric: acc, direction: maximize}
trials: 3
space: {x: {type: float, low: 0, high: 1}}
"""


def read(text: str, head: str = HEAD) -> Study:
    return loads(head + text, "s.yaml")


def refusal(text: str, head: str = HEAD) -> str:
    with pytest.raises(StudyFileError) as raised:
        read(text, head)
    return str(raised.value)


def test_a_path_or_keys() -> None:
    """Named data are recorded as those without a name are, and survive storing."""
    study = read(
        "data: {mnist: {path: /data/mnist, stage: node, wait: false}, words: d/words.zip}\n"
        "staging: {place: /local, quota: 2G}\n"
    )
    assert study.datasets == {
        "mnist": DataSet("/data/mnist", "node", wait=False),
        "words": DataSet("d/words.zip"),
    }
    assert study.data == ("/data/mnist", "d/words.zip")
    assert study.staging == Staging("/local", 2048)
    there = dataclasses.replace(study, workdir="/w").data_paths
    assert {name: str(path) for name, path in there.items()} == {
        "mnist": "/data/mnist",
        "words": "/w/d/words.zip",
    }
    assert Study.from_json(study.to_json()) == study


def test_what_fetches_them() -> None:
    """A command by its words, or addresses."""
    study = read(
        "data:\n  mnist: {path: /d, fetch: 'rsync -a host:/mnist/ {target}/'}\n"
        "  one: {path: /e, fetch: 'https://host/e.tar'}\n"
        "  two: {path: /f, fetch: ['https://host/a', 'FTP://host/b']}\n"
    )
    assert {name: one.fetch for name, one in study.datasets.items()} == {
        "mnist": ("rsync", "-a", "host:/mnist/", "{target}/"),
        "one": ("https://host/e.tar",),
        "two": ("https://host/a", "FTP://host/b"),
    }
    assert Study.from_json(study.to_json()) == study


def test_paths_without_names_are_recorded_alone() -> None:
    study = read("data: [a, b]\n", HEAD.replace("{data.mnist}", "x"))
    assert (study.data, study.datasets) == (("a", "b"), {})


@pytest.mark.parametrize(
    ("text", "head", "said"),
    [
        (
            "data: {minst: /d}\n",
            HEAD,
            "unknown placeholder {data.mnist}. Did you mean {data.minst}",
        ),
        ("data: [/d]\n", HEAD, "unknown placeholder {data.mnist}"),
        ("data: {mnist: /d, Mnist: /e}\n", HEAD, "has the variable of mnist: SWEEP_DATA_MNIST"),
        ("data: {mnist: /d}\nfixed: {data.mnist: 1}\n", HEAD, "is where a data set lies"),
        ("data: {m-nist: /d}\n", HEAD, "must be named by up to 40 letters, digits and _"),
        ("data: {path: /d, stage: node}\n", HEAD, "is a key of a data set, which needs a name"),
        ("data: {mnist: {stage: node}}\n", HEAD, "data.mnist.path: is missing"),
        ("data: {mnist: {path: /d, stage: rack}}\n", HEAD, "must be none or node"),
        ("data: {mnist: {path: /d, where: x}}\n", HEAD, "is not a key of a data set"),
        ("data: {mnist: {path: /d, fetch: get x}}\n", HEAD, "must say where its data go: {target}"),
        (
            "data: {mnist: {path: /d, fetch: ['https://h/a', '{target}']}}\n",
            HEAD,
            "must be addresses alone, or a command",
        ),
        ("data: {mnist: {path: /d, fetch: 'get {target} | tar x'}}\n", HEAD, "data.mnist.fetch"),
        ("data: {mnist: 5}\n", HEAD, 'data.mnist: must be a path (got 5). Put it in quotes: "5"'),
        ("data: {mnist: /d}\nstaging: {place: local}\n", HEAD, "must be an absolute path"),
    ],
)
def test_what_is_refused(text: str, head: str, said: str) -> None:
    """With the place, the rule and what to do."""
    assert said in refusal(text, head)


def test_a_launch_says_what_changed() -> None:
    """By the data set's name, and once."""
    old, new = read("data: {mnist: /d}\n"), read("data: {mnist: {path: /d, stage: node}}\n")
    allowed, refused = changes(old, new)
    assert not refused
    assert [one.partition(" was")[0] for one in allowed] == ["data.mnist.stage"]


def test_the_schema_knows_both_forms() -> None:
    """Editors complete the keys of a data set."""
    forms = json_schema()["properties"]["data"]["anyOf"]
    named = next(form for form in forms if form.get("type") == "object")
    assert DATA_SET.schema() in named["additionalProperties"]["anyOf"]
