"""What a study's sampler, terminator and trackers need is asked for before the first trial."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.control.check import FAILED, OK, quick, requirements
from sweep.core.errors import InputError, SweepError
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Study
from sweep.search import samplers

SPACE = Space((Parameter("lr", "float", low=0.0, high=1.0),))


def make(sampler: str = "tpe", space: Space = SPACE, **more: Any) -> Study:
    return Study(
        "s", ("true",), (Objective("loss"),), space, trials=4, sampler=Choice(sampler), **more
    )


CASES = [
    (make("gp"), "sampler gp", "torch"),
    (make("cmaes"), "sampler cmaes", "cmaes"),
    (make("qmc"), "sampler qmc", "scipy"),
    (make(terminator=Choice("emmr")), "terminator emmr", "torch"),
    (make(track=("mlflow",)), "tracker mlflow", "mlflow"),
    (make(track=("tensorboard",)), "tracker tensorboard", "tensorboard"),
]


@pytest.mark.parametrize(("study", "what", "package"), CASES)
def test_what_is_missing_is_named(
    study: Study, what: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check and launch refuse it, with what to install; where it is there they do not."""
    monkeypatch.setattr(samplers, "find_spec", lambda name: object())
    quick.check_startable(study, os.environ)
    monkeypatch.setattr(samplers, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(SweepError) as caught:
        quick.check_startable(study, os.environ)
    assert f"The {what} needs the package {package}, which is not" in caught.value.message
    assert f"pip install {package}" in (caught.value.hint or "").lower()


def test_a_space_that_the_sampler_cannot_search() -> None:
    """Said as well before anything is made."""
    space = Space((Parameter("kind", "categorical", choices=("a", "b")),))
    with pytest.raises(InputError, match="takes numbers only"):
        requirements.check(make("cmaes", space))


def test_a_plain_study_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch and trackers the usual samplers work."""
    monkeypatch.setattr(samplers, "find_spec", lambda name: None)
    for sampler in ("auto", "tpe", "random", "grid", "nsgaii"):
        requirements.check(make(sampler))
        assert requirements.needed(make(sampler)) == ["optuna"]


def test_on_a_node_each_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed and broken is found, with Python's own word for it."""
    assert requirements.judge(requirements.ask(make())).state == OK
    (tmp_path / "cmaes.py").write_text("raise ImportError('libcma.so.1: cannot open it')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    line = requirements.judge(requirements.ask(make("cmaes"), sys.executable))
    assert (line.name, line.state) == ("packages", FAILED)
    assert "cmaes: ImportError: libcma.so.1: cannot open it" in line.text
    assert "pip install cmaes" in line.advice
