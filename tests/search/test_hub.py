"""Samplers of OptunaHub's registry: fetched from a real Git repository, pinned, frozen, run."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweep.core.paths import StudyFolder
from sweep.core.study import Choice, Study
from sweep.search import hub, own
from sweep.search.hub import HubFailed
from sweep.search.own import Asked, OwnFailed
from tests.search.test_propose import NUMBERS, make

SAMPLER = """
from ._draws import draw
import optuna

class Fixed(optuna.samplers.BaseSampler):
    def __init__(self, share=0.5, seed=None):
        self.share, self.asked = share, 0
    def infer_relative_search_space(self, study, trial):
        return {}
    def sample_relative(self, study, trial, space):
        return {}
    def sample_independent(self, study, trial, name, distribution):
        COUNTS
        return draw(distribution, self.share)
"""
DRAWS = """
def draw(distribution, share):
    return distribution.low + share * (distribution.high - distribution.low)
"""
FILES = {
    "samplers/fixed/__init__.py": "from .sampler import Fixed\n__all__ = ['Fixed']\n",
    "samplers/fixed/sampler.py": SAMPLER.replace("COUNTS", "pass"),
    "samplers/fixed/_draws.py": DRAWS,
    "samplers/two/__init__.py": "from optuna.samplers import RandomSampler, TPESampler\n",
    "samplers/counts/__init__.py": "from .sampler import Fixed\n",
    "samplers/counts/sampler.py": SAMPLER.replace("COUNTS", "self.asked += 1"),
    "samplers/counts/_draws.py": DRAWS,
    "samplers/wants/__init__.py": "import optunahubs\n",
    "samplers/wants/requirements.txt": "# what it wants\noptunahubs>=1\nnumpy\n",
    "samplers/none/__init__.py": "X = 1\n",
    "pruners/never/__init__.py": "from optuna.pruners import NopPruner\n__all__ = ['NopPruner']\n",
}


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@here")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        path = folder / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "packages")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, FILES)
    git(folder, "tag", "--annotate", "--message", "first", "v1")
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}


def named(registry: Path | str, name: str = "fixed", **more: Any) -> Choice:
    options = {"arguments": {}, "time_limit_s": 60, "registry": str(registry), "revision": "main"}
    return Choice(f"optunahub:{name}", {**options, "class": "", **more})


def study_of(choice: Choice, **more: Any) -> Study:
    made = make("tpe", NUMBERS, trials=10)
    return Study(**{**vars(made), "sampler": choice, **more})


def first() -> Any:
    trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
    trial.number = 0
    return trial


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "study")


def test_it_is_fetched_pinned_frozen_and_run(
    registry: Path, environ: dict[str, str], folder: StudyFolder, tmp_path: Path
) -> None:
    """One folder of one commit; tasks have the copy in the study's folder alone."""
    said: list[str] = []
    chosen = named(registry, arguments={"share": 0.25})
    study = hub.ensure(
        study_of(chosen, pruner=named(registry, "never")), folder, environ, said.append
    )
    head = git(registry, "rev-parse", "HEAD")
    assert study.sampler.options["pinned"] == study.pruner.options["pinned"] == head
    assert said[0] == f"sampler optunahub:fixed: commit {head} of {registry}"
    assert Study.from_json(study.to_json()) == study
    kept = hub.place(hub.cache_folder(environ), "sampler", study.sampler)
    assert sorted(one.name for one in kept.iterdir()) == ["__init__.py", "_draws.py", "sampler.py"]
    assert [one.name for one in kept.parent.iterdir()] == ["fixed"]  # nothing half made beside it
    hub.freeze(study, folder, environ)
    hub.freeze(study, folder, environ)
    with contextlib.closing(Asked(tmp_path, {"the study's folder": folder.hub})) as asked:
        params, _ = asked.propose(study, [], first(), 1, {})
        low, high = NUMBERS.get("x").low, NUMBERS.get("x").high
        assert low is not None and high is not None
        assert params["x"] == pytest.approx(low + 0.25 * (high - low))
        trained = first()
        trained.intermediate_values = {1: 0.5}
        assert asked.prunes(study, [], trained) is False
    assert own.check(study, tmp_path, {"the study's folder": folder.hub}) == ""


def test_what_was_pinned_stays(
    registry: Path, environ: dict[str, str], folder: StudyFolder, tmp_path: Path
) -> None:
    """A later launch asks no network, unless its study file says something else."""
    chosen = named(registry, revision="v1")
    study = hub.ensure(study_of(chosen), folder, environ)
    hub.freeze(study, folder, environ)
    folder.study.write_text(study.to_json())
    said: list[str] = []
    away = {**environ, "PATH": str(tmp_path)}  # no git, even
    again = hub.ensure(
        study_of(named(registry, revision="v1", arguments={"share": 1})), folder, away
    )
    assert again.sampler.options["pinned"] == study.sampler.options["pinned"]
    assert again.sampler.options["arguments"] == {"share": 1}
    newer = commit(registry, {"samplers/fixed/README.md": "newer"})
    moved = hub.ensure(study_of(named(registry)), folder, environ, said.append)
    assert moved.sampler.options["pinned"] == newer != study.sampler.options["pinned"]
    by_name = hub.ensure(study_of(named(registry, revision=newer)), folder, environ)
    assert by_name.sampler.options["pinned"] == newer


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"name": "fixd"}, r"has no package/samplers/fixd at [0-9a-f]{40}"),
    ({"revision": "v2"}, "has no branch or tag v2"),
    ({"revision": "0" * 40}, "cannot be fetched from"),
    ({"registry": "/nowhere/at/all"}, "cannot be fetched from /nowhere/at/all: .*"),
]


@pytest.mark.parametrize(("given", "message"), FAULTS, ids=[m for _, m in FAULTS])
def test_what_cannot_be_fetched_is_said(
    registry: Path,
    environ: dict[str, str],
    folder: StudyFolder,
    given: dict[str, Any],
    message: str,
) -> None:
    name, where = given.get("name", "fixed"), given.get("registry", registry)
    revision = given.get("revision", "main")
    with pytest.raises(HubFailed, match=message):
        hub.ensure(study_of(named(where, name, revision=revision)), folder, environ)


def test_without_git_or_a_copy(
    registry: Path, environ: dict[str, str], folder: StudyFolder, tmp_path: Path
) -> None:
    with pytest.raises(HubFailed, match="by git, which is not installed"):
        hub.ensure(study_of(named(registry)), folder, {**environ, "PATH": str(tmp_path)})
    gone = study_of(named(registry, pinned="1" * 40))
    asked = Asked(tmp_path, {"the study's folder": folder.hub})
    with pytest.raises(OwnFailed, match="is not in the study's folder"):
        asked.propose(gone, [], first(), 1, {})
    with pytest.raises(HubFailed, match="is not in the cache"):
        hub.freeze(gone, folder, environ)
    assert own.check(study_of(named(registry)), tmp_path) == ""  # nobody has fetched it


@pytest.fixture(scope="module")
def tried(registry: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Tries a package as a launch does, in one process for all."""
    place = tmp_path_factory.mktemp("tried")
    environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(place)}
    cached = {"the cache": hub.cache_folder(environ)}
    with contextlib.closing(Asked(place, cached)) as asked:

        def propose(name: str, **more: Any) -> Any:
            study = study_of(named(registry, name, **more))
            study = hub.ensure(study, StudyFolder(place / "study"), environ)
            return asked, study, lambda: asked.propose(study, [], first(), 1, {})[0]

        yield propose


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("two", "its package has RandomSampler, TPESampler", "class: RandomSampler"),
        ("none", "its package has no subclass of optuna's BaseSampler", "Name another"),
        (
            "wants",
            r"No module named 'optunahubs' \(its requirements.txt: optunahubs>=1, numpy\)",
            "pip install optunahubs>=1 numpy",
        ),
    ],
)
def test_what_a_package_lacks_is_said(tried: Any, name: str, message: str, hint: str) -> None:
    _, _, propose = tried(name)
    with pytest.raises(OwnFailed, match=message) as caught:
        propose()
    assert hint in caught.value.hint


def test_a_class_of_several(tried: Any) -> None:
    _, _, propose = tried("two", **{"class": "RandomSampler"})
    assert propose()
    _, _, propose = tried("two", **{"class": "GPSampler"})
    with pytest.raises(OwnFailed, match="has no GPSampler; it has RandomSampler, TPESampler"):
        propose()


def test_what_a_sampler_keeps_in_its_object(tried: Any) -> None:
    """It is made anew for each trial: that is said before anything runs."""
    asked, study, _ = tried("counts")
    assert asked.remembers(study) == ["asked"]
    asked, study, _ = tried("fixed")
    assert asked.remembers(study) == []


def test_the_question_is_plain(registry: Path) -> None:
    """What goes to the process is JSON, the pin with it."""
    study = study_of(named(registry, pinned="2" * 40))
    assert json.loads(study.to_json())["sampler"]["options"]["pinned"] == "2" * 40
