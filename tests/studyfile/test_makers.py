"""Converted sweeps, judged by the packages of those who made the formats.

W&B's ``wandb`` and ``sweeps`` and Hydra's Optuna plugin (which needs an Optuna below 3) are each
installed into an environment of its own. They say what a file means: the values at seven places of
each parameter's range, its choices, the argv of one point.
"""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.placeholders import EDIT
from sweep.core.space import Parameter
from sweep.core.study import Study
from sweep.search.draws import from_unit
from sweep.studyfile import loads
from sweep.studyfile.starter.convert import convert
from sweep.training.command.environment import TrialValues
from sweep.training.command.filling import fill, json_config
from tests.needs import skip_or_fail
from tests.studyfile.test_intake import HYDRA, WANDB, Case

pytestmark = [pytest.mark.long, pytest.mark.real]

HERE = Path(__file__).parent / "makers"
WANDB_PACKAGES = ("wandb==0.31.0", "sweeps==0.3.0")
HYDRA_PACKAGES = (*("hydra-core==1.3.*", "hydra-optuna-sweeper>=1.2", "optuna<3", "sqlalchemy<2"),)
PLACES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # as in makers/wandb_judge.py
# Sweepers whose plugins are not installed here.
OTHERS = re.compile(r"nevergrad|ax_config|parametrization|joblib", re.IGNORECASE)


def make_environment(folder: Path, packages: Sequence[str]) -> Path:
    """Return the interpreter of a new environment with these packages; else skip or fail."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        skip_or_fail("makers", f"pip installs no {' '.join(packages)}: {done.stderr[-300:]}")
    return python


def ask(python: Path, judge: str, questions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a judge's answer for each file."""
    done = subprocess.run(
        [python, HERE / judge],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def study_of(case: Case, folder: Path) -> Study:
    path = folder / "sweep.yaml"
    path.write_text(case.text)
    return loads(convert(path).text, "study.yaml")


def point_of(study: Study) -> dict[str, Any]:
    """Return one point: the middle of each range."""
    return {parameter.name: from_unit(parameter, 0.5) for parameter in study.space}


def argv_of(study: Study, folder: Path) -> list[str]:
    values = TrialValues.within(
        AttemptFolder(folder),
        config=folder / "config.yaml",
        params={**point_of(study), **study.fixed},
        seed=0,
        token="t",
    )
    argv = fill(study.command, values, [*study.space.names(), *study.fixed])
    return ["JSON_FILE" if word == str(json_config(values.config)) else word for word in argv]


@pytest.fixture(scope="module")
def wandb(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What W&B says of each small sweep."""
    folder = tmp_path_factory.mktemp("wandb")
    python = make_environment(folder / "venv", WANDB_PACKAGES)
    questions = {
        case.name: {"text": case.text, "point": point_of(study_of(case, folder))} for case in WANDB
    }
    return ask(python, "wandb_judge.py", questions)


@pytest.fixture(scope="module")
def hydra(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Hydra says of each small configuration of its own sweeper and of Optuna's."""
    folder = tmp_path_factory.mktemp("hydra")
    python = make_environment(folder / "venv", HYDRA_PACKAGES)
    questions = {}
    for case in OF_HYDRA:
        study = study_of(case, folder)
        names = {*study.space.names(), *study.fixed}
        argv = [word for word in argv_of(study, folder) if word.partition("=")[0] in names]
        is_grid = study.sampler.type == "grid"
        is_basic = "optuna" not in case.text
        questions[case.name] = {
            "text": case.text,
            "argv": argv,
            "is_basic": is_basic,
            "is_grid": is_grid and not is_basic,
        }
    return ask(python, "hydra_judge.py", questions)


def is_said(case: Case, name: str) -> bool:
    """Tell whether a sentence of the conversion is about a parameter."""
    escaped = re.escape(name)
    about = re.compile(rf"(params|parameters|search_space)\.{escaped}\b|\b{escaped}\b")
    return any(about.match(line) or f" {name} " in line for line in case.lost)


def is_same(ours: Any, theirs: Any) -> bool:
    """Tell whether two values are one: also 15e-5, which YAML 1.1 takes for a text."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, str):
        return bool(re.fullmatch(r"-?\d+(\.\d+)?e-?\d+", theirs)) and float(theirs) == ours
    return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)


def compare_range(ours: Parameter, theirs: Mapping[str, Any]) -> None:
    """Hold a range to W&B's own values at several places of it."""
    is_whole = all(isinstance(value, int) for value in theirs["at"])
    assert ours.type == ("int" if is_whole else "float"), theirs
    # What W&B rounds to a step lies half of one to either side.
    slack = theirs["q"] or (1 if is_whole else 0)
    for unit, value in zip(PLACES, theirs["at"], strict=True):
        own = from_unit(ours, min(unit, 1 - 1e-12))
        if is_whole and unit == 0.0:
            assert (
                ours.low is not None and abs(value - ours.low) <= 1
            )  # randint's lowest is low - 1
            continue
        assert math.isclose(own, value, rel_tol=1e-5, abs_tol=slack), (unit, own, value)


def words_of(argv: Sequence[str]) -> list[str]:
    """Return an argv in a form that is the same for both: what says nothing left out, in order."""
    found = []
    for word in argv:
        head, equals, tail = word.partition("=")
        if word == "/usr/bin/env" or (equals and head.isupper() and not found):
            continue
        if word.startswith("{") or tail.startswith("{"):
            try:
                value = json.loads(word if word.startswith("{") else tail)
            except ValueError:
                value = ast.literal_eval(word if word.startswith("{") else tail)
            head = head if equals and not word.startswith("{") else ""
            word = f"{head}={json.dumps(value, sort_keys=True)}"
        elif equals and not head.startswith("--"):  # Hydra reads both
            word = f"{head}={({'True': 'true', 'False': 'false', 'None': 'null'}).get(tail, tail)}"
        found.append(word)
    return sorted(found)


@pytest.mark.parametrize("case", WANDB, ids=lambda case: case.name)
def test_wandb(case: Case, wandb: dict[str, Any], tmp_path: Path) -> None:
    """Each parameter is what W&B takes it for, and one point's argv is W&B's."""
    study, theirs = study_of(case, tmp_path), wandb[case.name]
    if "refused" in theirs:
        assert case.lost, theirs
        return
    for name, found in theirs["params"].items():
        if "constant" in found:
            assert name in study.fixed and is_same(study.fixed[name], found["constant"]), found
        elif is_said(case, name):
            assert name in study.space.names()
        elif "choices" in found:
            assert is_same(list(study.space.get(name).choices), found["choices"]), found
        else:
            compare_range(study.space.get(name), found)
    assert {*study.space.names(), *study.fixed} == theirs["params"].keys()
    is_of_command = re.compile(
        r"command:|program:|.*(nested; W&B|here it is|as Python does)|\$\{|job:"
    )
    if theirs["argv"] is not None and not any(map(is_of_command.match, case.lost)):
        assert words_of(argv_of(study, tmp_path)) == words_of(theirs["argv"])


OF_HYDRA = [case for case in HYDRA if not OTHERS.search(case.text)]


@pytest.mark.parametrize("case", OF_HYDRA, ids=lambda case: case.name)
def test_hydra(case: Case, hydra: dict[str, Any], tmp_path: Path) -> None:
    """Each parameter is the plugin's distribution, and Hydra reads our argv as our values."""
    study, theirs = study_of(case, tmp_path), hydra[case.name]
    values = {**point_of(study), **study.fixed}
    for name, found in theirs["params"].items():
        if is_said(case, name) or "refused" in found:
            assert is_said(case, name), (name, found)
            continue
        if "constant" in found:
            assert is_same(study.fixed[name], found["constant"]), (name, found)
            continue
        if name in study.fixed:
            assert found in ({"values": [study.fixed[name]]}, {"choices": [study.fixed[name]]})
            continue
        ours = study.space.get(name)
        if "values" in found:
            own = ours.choices or ours.values()
            assert sorted(map(str, own)) == sorted(map(str, found["values"])), name
        elif "choices" in found:
            # Their order means nothing, and a shuffled one is another each time.
            mine, others = (sorted(one, key=repr) for one in (ours.choices, found["choices"]))
            assert is_same(mine, others), (name, found)
        else:
            own_step = ours.step if ours.step != 1 or ours.type == "float" else None
            own_range = (ours.type, ours.low, ours.high, ours.log, own_step)
            assert own_range == tuple(found[k] for k in ("type", "low", "high", "log", "step")), (
                name
            )
    assert EDIT not in theirs["argv"]
    for name, value in theirs["argv"].items():
        assert is_same(
            list(values[name]) if isinstance(values[name], tuple) else values[name], value
        )
