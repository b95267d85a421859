"""One image, however its name in a registry is spelled."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sweep.core.paths import Runs
from sweep.core.study import Environment
from sweep.training.images import plan
from sweep.training.registry_names import read_registry_name
from tests.study_rows import make_study

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("spelled", "docker", "enroot"),
    [
        ("nvcr.io#nvidia/a:1", "nvcr.io/nvidia/a:1", "nvcr.io#nvidia/a:1"),
        ("nvcr.io/nvidia/a:1", "nvcr.io/nvidia/a:1", "nvcr.io#nvidia/a:1"),
        ("docker://nvcr.io#nvidia/a:1", "nvcr.io/nvidia/a:1", "nvcr.io#nvidia/a:1"),
        ("docker://nvcr.io/nvidia/a:1", "nvcr.io/nvidia/a:1", "nvcr.io#nvidia/a:1"),
        ("$oauthtoken@nvcr.io#a/b:1", "nvcr.io/a/b:1", "$oauthtoken@nvcr.io#a/b:1"),
        ("localhost:5000/a/b:1", "localhost:5000/a/b:1", "localhost:5000#a/b:1"),
        (f"ghcr.io/a/b@{DIGEST}", f"ghcr.io/a/b@{DIGEST}", f"ghcr.io#a/b@{DIGEST}"),
        ("docker://ubuntu:24.04", "ubuntu:24.04", "ubuntu:24.04"),
        ("docker://pytorch/pytorch", "pytorch/pytorch", "pytorch/pytorch"),
        ("docker.io/pytorch/pytorch", "pytorch/pytorch", "pytorch/pytorch"),
    ],
)
def test_each_program_gets_its_own_spelling(spelled: str, docker: str, enroot: str) -> None:
    found = read_registry_name(spelled)
    assert found is not None
    assert (found.for_docker, found.for_enroot) == (f"docker://{docker}", f"docker://{enroot}")


@pytest.mark.parametrize(
    "image",
    [
        *("a.sif", "my.dir/a.sif", "/a.io/b", "./a.io/b", "../a.io/b", "~/a", "ubuntu:24.04"),
        *("a/b:1", "oras://ghcr.io/a/b", "library://a/b", "docker-archive:a.tar", "", "docker://"),
    ],
)
def test_what_is_no_name_or_may_be_a_file(image: str) -> None:
    assert read_registry_name(image) is None


@pytest.mark.parametrize(
    ("runtime", "word"),
    [
        ("apptainer", "docker://nvcr.io/n/a:1"),
        ("enroot", "docker://nvcr.io#n/a:1"),
        ("pyxis", "--container-image=nvcr.io#n/a:1"),
    ],
)
def test_all_spellings_are_one_image(runtime: str, word: str, tmp_path: Path) -> None:
    """The program is given what it understands, and the image is built once."""
    (tmp_path / "srun").touch(mode=0o755)
    plans = [
        plan(
            dataclasses.replace(
                make_study(), environment=Environment(runtime, image), workdir=str(tmp_path)
            ),
            Runs(tmp_path),
            {"PATH": str(tmp_path)},
        )
        for scheme in ("", "docker://")
        for image in (f"{scheme}nvcr.io#n/a:1", f"{scheme}nvcr.io/n/a:1")
    ]
    assert {one.target for one in plans} == {plans[0].target}
    assert all(word in one.commands[0] for one in plans)
