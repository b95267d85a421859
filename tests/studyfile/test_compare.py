"""What may change between two launches of a study, and what may not."""

from __future__ import annotations

import pytest

from sweep.core.study import Study
from sweep.studyfile import changes, loads

BASE = """\
name: s
command: python train.py {params}
objective: {metric: acc, direction: maximize}
space:
  lr: {type: float, low: 1e-4, high: 0.1, log: true}
  opt: {type: categorical, choices: [sgd, adam]}
fixed: {epochs: 5}
points: [{lr: 0.01}]
trials: 30
"""

ALLOWED = [
    (["trials=50"], "trials was 30 and is now 50."),
    (["max_parallel=8"], "max_parallel was absent and is now 8."),
    (["resources.time=1h"], "resources.time was absent and is now 3600 s."),
    (["resources.memory=8G"], "resources.memory was absent and is now 8192 MiB."),
    (["retry.max_attempts=5"], "retry.max_attempts was 3 and is now 5."),
    (["slurm.partition=gpu"], 'slurm.partition was absent and is now "gpu".'),
    (["slurm.service.time=1d"], "slurm.service.time was absent and is now 86400 s."),
    (["environment.env.A=b"], 'environment.env.A was absent and is now "b".'),
    (["storage.embedded=here"], 'storage.embedded was "job" and is now "here".'),
    (["keep=1"], "keep was 5 and is now 1."),
    (["grace=2min"], "grace was 60 s and is now 120 s."),
    (["stall_time=5min"], "stall_time was absent and is now 300 s."),
    (["sampler=gp"], 'sampler.type was "auto" and is now "gp".'),
    (
        ["pruner={type: median, interval: 2}"],
        'pruner.type was "none" and is now "median".\n'
        "pruner.options.interval was absent and is now 2.",
    ),
    (
        ["command=python main.py {params}"],
        "command was python train.py '{params}' and is now "
        "python main.py '{params}'. New attempts run the new one.",
    ),
    (["objective.from.stdout=acc=(.*)"], 'objective.from.stdout was absent and is now "acc=(.*)".'),
    (
        ["objective.from={stdout: acc=(.*), step: epoch (.*)}"],
        'objective.from.stdout was absent and is now "acc=(.*)".\n'
        'objective.from.step was absent and is now "epoch (.*)".',
    ),
]

REFUSED = [
    (["trials=20"], "trials was 30 and is now 20; it can only grow."),
    (["space.lr.high=0.5"], "space.lr.high was 0.1 and is now 0.5."),
    (["space.lr.log=false"], "space.lr.log was true and is now false."),
    (
        ["space.opt.choices=[sgd, adamw]"],
        'space.opt.choices was ["sgd", "adam"] and is now ["sgd", "adamw"].',
    ),
    (["space.lr.when={opt: sgd}"], 'space.lr.when.opt was absent and is now ["sgd"].'),
    (["space.wd={type: int, low: 0, high: 1}"], "space.wd was added."),
    (
        ["points=[]", "space={lr: {type: float, low: 1e-4, high: 0.1, log: true}}"],
        'space.opt was removed.\npoints was [{"lr": 0.01}] and is now [].',
    ),
    (["objective.direction=minimize"], 'objective.direction was "maximize" and is now "minimize".'),
    (["objective.metric=loss"], 'objective.metric was "acc" and is now "loss".'),
    (["objective.at=last"], 'objective.at was "best" and is now "last".'),
    (["seed=1"], "seed was 0 and is now 1."),
    (["fixed.epochs=6"], "fixed.epochs was 5 and is now 6."),
    (["fixed.epochs=5.0"], "fixed.epochs was 5 and is now 5.0."),
    (["fixed.width=3"], "fixed.width was absent and is now 3."),
    (
        ["points=[{lr: 0.01}, {lr: 0.02}]"],
        'points was [{"lr": 0.01}] and is now [{"lr": 0.01}, {"lr": 0.02}]; '
        "trial 1 exists already.",
    ),
    (["points=[{lr: 0.02}]"], 'points was [{"lr": 0.01}] and is now [{"lr": 0.02}].'),
]


def compare(overrides: list[str]) -> tuple[list[str], list[str]]:
    old = Study.from_json(loads(BASE, "s.yaml").to_json())  # as it comes back from the store
    return changes(old, loads(BASE, "elsewhere.yaml", overrides))


def test_nothing_changed() -> None:
    """The same study from another file, with parameters in another order, is the same."""
    assert compare([]) == ([], [])
    order = (
        "space={opt: {type: categorical, choices: [sgd, adam]}, "
        "lr: {type: float, low: 1e-4, high: 1e-1, log: true}}"
    )
    assert compare([order]) == ([], [])


@pytest.mark.parametrize(("overrides", "sentences"), ALLOWED)
def test_allowed(overrides: list[str], sentences: str) -> None:
    """What leaves finished trials comparable may change, and is named."""
    assert compare(overrides) == (sentences.split("\n"), [])


@pytest.mark.parametrize(("overrides", "sentences"), REFUSED)
def test_refused(overrides: list[str], sentences: str) -> None:
    """What would make new trials answer another question is refused, naming both values."""
    assert compare(overrides) == ([], sentences.split("\n"))


def test_a_metric_that_no_trial_has_told() -> None:
    """Until a trial has told the objective, its name may be corrected; its direction may not."""
    new = loads(BASE, "s.yaml", ["objective.metric=loss"])
    old = loads(BASE, "s.yaml")
    assert changes(old, new, is_measured=False) == (compare(["objective.metric=loss"])[1], [])
    other = loads(BASE, "s.yaml", ["objective.metric=loss", "objective.direction=minimize"])
    assert changes(old, other, is_measured=False) == changes(old, other)


def test_constraints_that_no_trial_was_held_against() -> None:
    """Until one was, they may be corrected."""
    old = loads(BASE, "s.yaml", ["constraints={latt: {max: 5}}"])
    new = loads(BASE, "s.yaml", ["constraints={lat: {max: 5}}"])
    assert changes(old, new)[0] == []
    assert changes(old, new, is_judged=False) == (changes(old, new)[1], [])


def test_both() -> None:
    """Allowed and refused differences are told apart, all at once."""
    assert compare(["trials=50", "seed=1", "space.lr.high=1"]) == (
        ["trials was 30 and is now 50."],
        ["space.lr.high was 0.1 and is now 1.0.", "seed was 0 and is now 1."],
    )


def test_points_for_new_trials() -> None:
    """Points may be added for trials that are added."""
    old = loads(BASE, "s.yaml", ["trials=1"])
    new = loads(BASE, "s.yaml", ["trials=2", "points=[{lr: 0.01}, {lr: 0.02}]"])
    assert changes(old, new) == (
        [
            'points was [{"lr": 0.01}] and is now [{"lr": 0.01}, {"lr": 0.02}].',
            "trials was 1 and is now 2.",
        ],
        [],
    )


def test_several_objectives() -> None:
    """One of several objectives is named by its place."""
    two = ["objective=[{metric: a, direction: minimize}, {metric: b, direction: minimize}]"]
    other = ["objective=[{metric: a, direction: minimize}, {metric: c, direction: minimize}]"]
    old, new = loads(BASE, "s.yaml", two), loads(BASE, "s.yaml", other)
    assert changes(old, new) == ([], ['objective[1].metric was "b" and is now "c".'])
    single = loads(BASE, "s.yaml")
    assert len(changes(single, new)[1]) == 1


def test_a_workdir_of_ones_own_is_named_as_it_is_written() -> None:
    """And a section ddp that only a later version notes is no change."""
    old, new = loads(BASE, "s.yaml"), loads(BASE, "s.yaml", ["workdir=trial", "ddp={}"])
    assert changes(old, new) == (["workdir: trial was false and is now true."], [])
