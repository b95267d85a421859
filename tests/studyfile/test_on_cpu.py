"""What is left of a study of GPUs with ``--cpu``."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.errors import StudyFileError
from sweep.core.study import Study
from sweep.studyfile import load
from sweep.studyfile.on_cpu import HIDDEN
from tests.studyfile.test_defaults import FILE


def load_on_cpu(folder: Path, more: str, *overrides: str, site: str = "") -> Study:
    (folder / "study.yaml").write_text(FILE + more)
    (folder / "site.yaml").write_text(site)
    environ = {"SWEEP_SITE_CONFIG": str(folder / "site.yaml"), "SWEEP_USER_CONFIG": "/nonexistent"}
    return load(folder / "study.yaml", overrides, environ, cpu=True)


@pytest.mark.parametrize(
    "more",
    [
        "",
        "resources: {gpus: 'a100:2', cpus: 4}\ngpu_hours: 10\n",
        "resources: {shard: 4, cpus: 4}\n",
        "resources: {gpus: 1, share: auto, cpus: 4}\n",
        "resources:\n  mps: 50\n  cpus: 4\n",
        "resources: {gpus: 2, cpus: 4}\nddp: {ranks_per_node: 2}\n",
        "resources:\nenvironment:\n",
    ],
)
def test_no_gpu_is_asked_for_or_seen(more: str, tmp_path: Path) -> None:
    """What else the file says stays; the name is another one, so that no trials are mixed."""
    study = load_on_cpu(tmp_path, more)
    needs = study.resources
    assert (needs.gpu_count, needs.shard, needs.mps, study.gpu_hours) == (0, None, None, None)
    assert needs.share is None
    assert needs.cpus == (4 if "cpus" in more else None)
    assert study.name == "mine-cpu"
    assert study.environment.env == dict.fromkeys(HIDDEN, "")
    assert study.environment.runtime == "none"


def test_containers_get_none_either(tmp_path: Path) -> None:
    given = "{runtime: apptainer, image: a.sif, gpu: nvidia, env: {A: b, CUDA_VISIBLE_DEVICES: 1}}"
    environment = load_on_cpu(tmp_path, f"environment: {given}\n").environment
    assert environment.gpu == "none"
    assert environment.env == {"A": "b", **dict.fromkeys(HIDDEN, "")}


def test_defaults_and_settings_ask_for_none(tmp_path: Path) -> None:
    """Neither the site's defaults nor --set bring a GPU back."""
    study = load_on_cpu(
        tmp_path, "", "resources.gpus=1", "name=other", site="resources: {gpus: 4}\n"
    )
    assert (study.resources.gpu_count, study.name) == (0, "other-cpu")


def test_a_wrong_file_is_still_told(tmp_path: Path) -> None:
    """Sections that are none, and a name that is too long by its ending."""
    with pytest.raises(StudyFileError) as raised:
        load_on_cpu(tmp_path, "resources: 3\nenvironment: [a]\n", f"name={'n' * 98}")
    assert {problem.path for problem in raised.value.problems} == {
        *("resources", "environment", "name")
    }
