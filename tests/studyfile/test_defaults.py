"""The site's and the user's defaults beneath a study file: merging, strictness, origins."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.errors import InputError, StudyFileError
from sweep.core.settings import homes
from sweep.core.study import Study
from sweep.studyfile import load
from sweep.studyfile.defaults import MAY_BE_DEFAULTS
from sweep.studyfile.keys import STUDY
from sweep.studyfile.origins import origins

FILE = """\
name: mine
command: python train.py
objective: {metric: loss, direction: minimize}
space: {x: {type: float, low: 0.0, high: 1.0}}
trials: 3
"""


class Places:
    """A site's, a user's and a study file."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site.yaml"
        self.user = folder / "config.yaml"
        self.study = folder / "study.yaml"
        self.study.write_text(FILE)
        self.environ = {"SWEEP_SITE_CONFIG": str(self.site), "SWEEP_USER_CONFIG": str(self.user)}

    def load(self, *overrides: str) -> Study:
        return load(self.study, overrides, self.environ)

    def origin(self, path: str, *overrides: str) -> str:
        found = {one.path: one for one in origins(self.study, overrides, self.environ)}
        return found[path].origin


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_the_upper_file_wins_key_by_key(places: Places) -> None:
    """Study over user over site, each key with its own line."""
    places.site.write_text(
        "slurm:\n  account: site\n  partition: gpu\n  setup: [module load cuda]\nmax_parallel: 8\n"
    )
    places.user.write_text("slurm:\n  account: me\n")
    places.study.write_text(FILE + "slurm: {setup: []}\nmax_parallel: 2\n")
    study = places.load("slurm.qos=long")
    assert (study.slurm.account, study.slurm.partition, study.slurm.qos) == ("me", "gpu", "long")
    assert study.slurm.setup == ()  # a list is replaced as a whole
    assert study.max_parallel == 2
    assert places.origin("slurm.account") == f"{places.user}:2"
    assert places.origin("slurm.partition") == f"{places.site}:3"
    assert places.origin("slurm.setup") == f"{places.study}:6"
    assert places.origin("slurm.qos", "slurm.qos=long") == "--set slurm.qos=long"
    assert places.origin("keep") == "default"
    assert places.origin("grace") == "default"


def test_no_files_change_nothing(places: Places) -> None:
    assert places.load() == load(
        places.study, (), {"SWEEP_SITE_CONFIG": "", "SWEEP_USER_CONFIG": ""}
    )


def test_problems_name_the_file_and_line_of_defaults(places: Places) -> None:
    """As strict as a study file, all problems at once, each where it is."""
    places.site.write_text("slurm:\n  acount: proj1\nname: theirs\n")
    places.user.write_text("resources:\n  time: soon\nfoo: 1\n")
    with pytest.raises(StudyFileError) as caught:
        places.load()
    said = [str(problem) for problem in caught.value.problems]
    assert any(f"{places.site}:2: slurm.acount" in one and "account?" in one for one in said)
    assert any(f"{places.site}:3: name: is a study's own and no default" in one for one in said)
    assert any(f"{places.user}:2: resources.time" in one for one in said)
    assert any(f"{places.user}:3: foo: is not a key of a file of defaults" in one for one in said)


def test_what_does_not_fit_the_study_is_told_with_the_line_of_the_default(places: Places) -> None:
    places.site.write_text("resources:\n  time: 30s\n")
    with pytest.raises(StudyFileError, match=r"site\.yaml:2: resources\.time: must be longer"):
        places.load()


def test_another_runtime_leaves_the_lower_ones_keys_behind(places: Places) -> None:
    """A site's image and binds mean nothing to a study that runs without containers."""
    places.site.write_text(
        "environment: {runtime: apptainer, image: a.sif, binds: [/data], env: {A: b}}\n"
    )
    assert places.load().environment.binds == ("/data",)
    places.study.write_text(FILE + "environment: {runtime: none}\n")
    found = places.load().environment
    assert (found.runtime, found.image, found.binds, found.env) == ("none", None, (), {"A": "b"})
    places.study.write_text(FILE + "environment: {image: b.sif}\n")
    found = places.load().environment
    assert (found.runtime, found.image, found.binds) == ("apptainer", "b.sif", ("/data",))


def test_what_excludes_each_other_is_decided_by_the_upper_file(places: Places) -> None:
    places.site.write_text("resources: {gpus: 1, cpus: 4}\nstorage: {embedded: here}\n")
    places.study.write_text(FILE + "resources: {shard: 16}\nstorage: {url: postgresql://db/x}\n")
    study = places.load()
    assert (study.resources.gpus, study.resources.shard, study.resources.cpus) == (0, 16, 4)
    assert study.storage.url == "postgresql://db/x"


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_is_none(places: Places, text: str) -> None:
    places.user.write_text(text)
    assert places.load().name == "mine"


def test_a_file_that_others_may_change_is_refused(places: Places) -> None:
    """Its setup lines run as you."""
    places.user.write_text("max_parallel: 2\n")
    places.user.chmod(0o666)
    with pytest.raises(InputError, match="can be changed by other users"):
        places.load()


def test_not_yaml(places: Places) -> None:
    places.user.write_text("slurm: [\n")
    with pytest.raises(StudyFileError, match=r"config\.yaml:\d: is not YAML"):
        places.load()
    places.user.write_text("- a\n")
    with pytest.raises(StudyFileError, match="must be a mapping"):
        places.load()


def test_where_files_lie() -> None:
    """/etc and ~/.config by default; variables name others, and nothing switches off."""
    assert [str(home.file) for home in homes({"HOME": "/home/me"})] == [
        "/etc/sweep/site.yaml",
        "/home/me/.config/sweep/config.yaml",
    ]
    assert str(homes({"XDG_CONFIG_HOME": "/x"})[1].templates) == "/x/sweep/templates"
    assert homes({"SWEEP_SITE_CONFIG": "", "SWEEP_USER_CONFIG": ""}) == []


def test_what_may_be_a_default_is_a_key_of_a_study_file() -> None:
    """A new key is a study's own until it is named there."""
    assert set(MAY_BE_DEFAULTS) <= set(STUDY.keys)


def test_defaults_alone(places: Places) -> None:
    """Without a study file the defaults show by themselves."""
    places.site.write_text("slurm: {account: proj1}\n")
    found = {one.path: one for one in origins(None, (), places.environ)}
    assert found["slurm.account"].value == "proj1"
    assert "name" not in found and found["keep"].origin == "default"
