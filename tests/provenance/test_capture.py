"""What a result came from: recorded quickly, without secrets, and compared in sentences."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from sweep.core.masking import mask
from sweep.core.space import Space
from sweep.core.study import Environment, Objective, Study
from sweep.provenance import capture, data, machine
from sweep.provenance.differences import differences
from sweep.provenance.installed import list_packages
from sweep.provenance.machine import capture_gpus, capture_host
from sweep.provenance.packages import describe_conda, describe_python

COMMAND = ("python", "train.py", "--lr", "{lr}")


def capture_study(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Return the record of a study without the patch of its code."""
    return capture.capture_study(*arguments, **options)[0]


def make_study(folder: Path, command: tuple[str, ...] = COMMAND, **more: object) -> Study:
    return Study("s", command, (Objective("x"),), Space(), workdir=str(folder), **more)  # type: ignore[arg-type]


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo with 'space'"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("ignored.py\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "remote", "add", "origin", "https://user:s3cret@host/x.git")
    return folder


def test_a_clean_commit(repository: Path) -> None:
    """Commit, branch and origin are recorded, the origin without its password."""
    code = capture_study(make_study(repository))["code"]
    digest = code.pop("files")
    assert code == {
        "git": "ok",
        "repository": str(repository),
        "origin": "https://***@host/x.git",
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "dirty": False,
        "diff": None,
        "untracked": [],
        "untracked_imported": [],
        "submodules": {},
    }
    assert list(digest) == ["train.py"]
    assert len(digest["train.py"]) == 64


def test_what_makes_a_tree_dirty(repository: Path) -> None:
    """Changed files and new code count, from any folder of the repository; ignored files, results
    and notes do not."""

    def capture() -> tuple[bool, str | None]:
        code = capture_study(make_study(repository / "sub"))["code"]
        return code["dirty"], code["diff"]

    (repository / "ignored.py").write_text("x")
    (repository / "notes.txt").write_text("x")
    assert capture() == (False, None)
    (repository / "new.py").write_text("x = 1\n")
    _, added = capture()
    (repository / "new.py").write_text("x = 2\n")
    _, edited = capture()
    (repository / "train.py").write_text("print(2)\n")
    dirty, changed = capture()
    assert dirty
    assert len({added, edited, changed, None}) == 4
    assert capture() == (True, changed)


def test_runs_are_not_code(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the runs folder never makes the tree dirty."""
    monkeypatch.setenv("SWEEP_RUNS", str(repository / "runs"))
    (repository / "runs/python").mkdir(parents=True)
    (repository / "runs/python/report.py").write_text("x")
    assert capture_study(make_study(repository))["code"]["dirty"] is False


def test_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no git the record says why, and the script's hash stands in."""
    (tmp_path / "train.py").write_text("print(1)\n")
    code = capture_study(make_study(tmp_path))["code"]
    assert code["git"].startswith("fatal: not a git repository")
    assert list(code["files"]) == ["train.py"]
    git(tmp_path, "init", "-q")
    code = capture_study(make_study(tmp_path))["code"]
    assert code["git"] == "the repository has no commit yet"
    monkeypatch.setenv("PATH", str(tmp_path))
    code = capture_study(make_study(tmp_path))["code"]
    assert code["git"] == "git is not installed"


IMPORTS = {
    "trainer/__init__.py": "",
    "trainer/train.py": "import os, json\nfrom . import model\nfrom .deep.er import (\n  f,\n)\n",
    "trainer/model.py": "from trainer import (\n    layers,\n    gone,\n)\nimport numpy as np\n",
    "trainer/layers.py": "def f():\n    import late\n",
    "trainer/deep/er.py": "from ..shapes import *\n",
    "trainer/shapes.py": "import trainer.train  # in a circle\n",
    "trainer/unused.py": "",
    "late.py": "",
    "src/package/__init__.py": "",
    "src/package/a.py": "",
    "alone.py": "from package.a import b\n",
    "other.py": "",
}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (
            "python -m trainer.train --x={x}",
            "late.py trainer/__init__.py trainer/deep/er.py trainer/layers.py trainer/model.py "
            "trainer/shapes.py trainer/train.py",
        ),
        ("python -m alone", "alone.py src/package/__init__.py src/package/a.py"),
        ("python trainer/layers.py other.py", "late.py other.py trainer/layers.py"),
    ],
)
def test_what_the_command_imports(tmp_path: Path, command: str, found: str) -> None:
    """The files of the user's own that a command reaches by its imports are hashed; no others."""
    for name, text in IMPORTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    files = capture_study(make_study(tmp_path, tuple(command.split())))["code"]["files"]
    assert " ".join(sorted(files)) == found


def test_untracked_files_that_are_imported(repository: Path) -> None:
    """What a commit would lack is named, what the command imports of it by itself."""
    (repository / "train.py").write_text("import new\n")
    for name in ("new.py", "a.py", "note.txt"):
        (repository / name).write_text("")
    code = capture_study(make_study(repository))["code"]
    assert code["untracked"] == ["new.py", "a.py"]
    assert code["untracked_imported"] == ["new.py"]
    assert sorted(code["files"]) == ["new.py", "train.py"]


def test_submodules(repository: Path, tmp_path: Path) -> None:
    """A submodule is known by its commit."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "part.py").write_text("1\n")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "part")
    allow = ("-c", "protocol.file.allow=always")
    git(repository, *allow, "submodule", "add", "-q", str(other), "part")
    first = capture_study(make_study(repository))
    assert first["code"]["submodules"] == {"part": git(other, "rev-parse", "HEAD")}
    (repository / "part/part.py").write_text("2\n")
    git(repository / "part", "commit", "-q", "-a", "-m", "next")
    second = capture_study(make_study(repository))
    assert "code: the submodule part has another commit." in differences(first, second)


def test_our_own_environment() -> None:
    """Our interpreter's packages are those that importlib.metadata lists."""
    from importlib.metadata import version

    got = describe_python(Path(sys.executable))
    assert got["python"] == ".".join(map(str, sys.version_info[:3]))
    packages = got["packages"]
    assert isinstance(packages, dict)
    assert packages["pytest"] == version("pytest")
    assert len(packages) > 5


def test_packages_of_a_venv_that_is_not_ours(tmp_path: Path) -> None:
    """A venv's packages are read from its folders; addresses lose their secrets."""
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").touch(mode=0o755)
    (tmp_path / "env/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.9.2\n")
    site = tmp_path / "env/lib/python3.9/site-packages"
    for name in ("numpy-1.26.4", "Foo_Bar-2.0", "mine-0.1", "old-3.0-py3.9"):
        suffix = "egg-info" if name.startswith("old") else "dist-info"
        (site / f"{name}.{suffix}").mkdir(parents=True)
    (site / "mine-0.1.dist-info/direct_url.json").write_text(
        json.dumps({"url": "https://tok@git.x/m.git", "vcs_info": {"commit_id": "abc"}})
    )
    study = make_study(tmp_path, environment=Environment(runtime="venv", image="env"))
    got = capture_study(study)["environment"]
    assert got["python"] == "3.9.2"
    assert got["interpreter"] == str(tmp_path / "env/bin/python")
    assert got["packages"] == {
        "foo-bar": "2.0",
        "mine": "0.1 @ https://***@git.x/m.git@abc",
        "numpy": "1.26.4",
        "old": "3.0",
    }
    assert list_packages([tmp_path / "nowhere"]) == {}


def test_an_image_is_hashed(tmp_path: Path) -> None:
    """An image that is a file is known by its SHA-256."""
    (tmp_path / "a.sif").write_bytes(b"abc")
    study = make_study(tmp_path, environment=Environment(runtime="apptainer", image="a.sif"))
    got = capture_study(study)["environment"]
    assert got["image_sha256"] == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, "abc"
    )
    assert "packages" not in got
    first = capture_study(study)
    assert capture_study(study, known=first) == first
    (tmp_path / "a.sif").write_bytes(b"abd!")
    assert differences(first, capture_study(study, known=first)) == [
        "environment: the image's content was ba7816bf8f01 and is 053071a2efb7."
    ]


def test_data_is_known_by_content(tmp_path: Path) -> None:
    """A copy with other times has the same content; another byte has not; absence is recorded."""
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/x.bin").write_bytes(b"123")
    study = make_study(tmp_path, data=("d", "gone"))
    first = capture_study(study)
    assert first["data"]["gone"] == {"missing": True}
    assert (first["data"]["d"]["files"], first["data"]["d"]["bytes"]) == (1, 3)
    os.utime(tmp_path / "d/e/x.bin", (1, 1))
    second = capture_study(study)
    assert second["data"]["d"]["manifest_sha256"] != first["data"]["d"]["manifest_sha256"]
    assert differences(first, second) == []
    (tmp_path / "d/e/x.bin").write_bytes(b"124")
    assert differences(second, capture_study(study)) == [
        "data: d has other content (1 files of 3 bytes, now 1 of 3)."
    ]


def test_large_data_is_known_by_names_sizes_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit contents are not read."""
    monkeypatch.setattr(data, "MAX_HASHED_BYTES", 2)
    (tmp_path / "d").write_bytes(b"123")
    study = make_study(tmp_path, data=("d",))
    first = capture_study(study)
    assert "content_sha256" not in first["data"]["d"]
    os.utime(tmp_path / "d", (1, 1))
    assert differences(first, capture_study(study)) == [
        "data: d has other files' times (1 files of 3 bytes, now 1 of 3)."
    ]
    (tmp_path / "d").write_bytes(b"124")
    assert differences(first, capture_study(study)) == [
        "data: d has other content, by samples (1 files of 3 bytes, now 1 of 3)."
    ]
    (tmp_path / "d").write_bytes(b"1234")
    assert differences(first, capture_study(study)) == [
        "data: d has other files, or sizes of them (1 files of 3 bytes, now 1 of 4)."
    ]
    asked = capture_study(study, full=True)
    assert asked["data"]["d"]["content_sha256"]
    # Later records of it are whole too, and nothing is read while nothing was touched.
    again = capture_study(study, known=asked)
    assert again["data"] == asked["data"]
    (tmp_path / "d").write_bytes(b"4321")
    assert differences(asked, capture_study(study, known=asked)) == [
        "data: d has other content (1 files of 4 bytes, now 1 of 4)."
    ]


def test_a_list_of_checksums_stands_for_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the data have a list of checksums, it says that they are others."""
    monkeypatch.setattr(data, "MAX_HASHED_BYTES", 2)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x").write_bytes(b"123")
    (tmp_path / "d/SHA256SUMS").write_text("1  x\n")
    study = make_study(tmp_path, data=("d",))
    first = capture_study(study)
    (tmp_path / "d/SHA256SUMS").write_text("2  x\n")
    assert differences(first, capture_study(study)) == [
        "data: d has other content, by its list of checksums (2 files of 8 bytes, now 2 of 8)."
    ]


def test_the_host() -> None:
    """The machine is described, and the description is JSON."""
    host = capture_host()
    assert sorted(host) == ["cpu", "cpus", "host", "kernel"]
    assert host["cpus"] == len(os.sched_getaffinity(0))
    assert json.loads(json.dumps(host)) == host


def test_gpus_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with commas are kept whole; a tool that fails is said."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'NVIDIA H100, 80GB, 570.1\\nNVIDIA H100, 80GB, 570.1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(machine, "NVIDIA", tmp_path / "none")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "1"}
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda/version.json").write_text('{"cuda": {"version": "12.4.1"}}')
    found = capture_gpus(environ | {"CUDA_HOME": str(tmp_path / "cuda")})
    assert found == {
        "gpus": ["NVIDIA H100, 80GB"] * 2,
        "driver": "570.1",
        "cuda": "12.4.1",
        "cuda_visible_devices": "1",
    }
    tool.write_text("#!/bin/sh\nexit 9\n")
    found = capture_gpus(environ)
    assert (found["gpus"], found["driver"]) == ([], "nvidia-smi failed")


def test_gpus_by_the_drivers_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver's files tell, no process is started; models that differ need one."""
    monkeypatch.setattr(machine, "NVIDIA", tmp_path)
    for slot in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / slot).mkdir(parents=True)
        (tmp_path / "gpus" / slot / "information").write_text(
            "Model: \t\t NVIDIA H200\nIRQ:   \t\t 99\nGPU UUID: \t GPU-1\n"
        )
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"
        "GCC version:  gcc version 12.3.0\n"
    )
    found = capture_gpus({"PATH": ""})
    assert (found["gpus"], found["driver"]) == (["NVIDIA H200"] * 2, "570.133.20")
    (tmp_path / "gpus/0000:02:00.0/information").write_text("Model: \t\t NVIDIA A100\n")
    assert capture_gpus({"PATH": ""})["gpus"] == []


RECORD = {
    "code": {"git": "ok", "commit": "a" * 40, "dirty": False, "diff": None, "files": {"t.py": "1"}},
    "environment": {
        "python": "3.11.7",
        "packages": {"torch": "2.1", "numpy": "1.0"},
        "gpus": ["A100"],
        "modules": ["gcc/13"],
        "variables": {"OMP_NUM_THREADS": "2", "NCCL_ALGO": "Ring"},
    },
    "data": {"d": {"files": 1, "bytes": 3, "manifest_sha256": "m", "content_sha256": "c"}},
    "execution": {"host": "n1", "kernel": "6.1", "cpus": 4, "cpu": "EPYC"},
}


@pytest.mark.parametrize(
    ("axis", "change", "sentences"),
    [
        ("code", {}, []),
        ("code", {"commit": "b" * 40}, ["code: the commit was aaaaaaaaaa and is bbbbbbbbbb."]),
        ("code", {"dirty": True, "diff": "x"}, ["code: there are uncommitted changes now."]),
        (
            "code",
            {"git": "git is not installed", "commit": None, "files": {"t.py": "2", "u.py": "1"}},
            [
                "code: no commit is known now (git is not installed).",
                "code: t.py has changed.",
                "code: u.py is new.",
            ],
        ),
        (
            "environment",
            {"python": "3.12.1", "packages": {"torch": "2.2", "rich": "13"}},
            [
                "environment: Python was 3.11.7 and is 3.12.1.",
                "environment: numpy 1.0 is gone.",
                "environment: rich 13 is new.",
                "environment: torch was 2.1 and is 2.2.",
            ],
        ),
        ("data", {"d": {"missing": True}}, ["data: d is missing now."]),
        ("execution", {"host": "n2", "kernel": "6.2"}, []),
        (
            "environment",
            {"gpus": [], "modules": ["gcc/14"], "variables": {"OMP_NUM_THREADS": "4", "TF_X": "1"}},
            [
                "environment: the list of GPUs was A100 and is none.",
                "environment: the list of loaded modules was gcc/13 and is gcc/14.",
                "environment: the variable NCCL_ALGO was Ring and is not set.",
                "environment: the variable OMP_NUM_THREADS was 2 and is 4.",
                "environment: the variable TF_X is 1 and was not set.",
            ],
        ),
        ("execution", {"cpus": 8}, ["execution: the number of CPUs was 4 and is 8."]),
        (
            "code",
            {"snapshot": "s", "modified": ["t.py"]},
            ["code: t.py was changed in the frozen code."],
        ),
    ],
)
def test_differences_are_sentences(
    axis: str, change: dict[str, object], sentences: list[str]
) -> None:
    """Each difference that may explain a result names its axis; another host alone does not."""
    other = copy.deepcopy(RECORD)
    other[axis].update(change)
    assert differences(RECORD, other) == sentences


def test_frozen_code_counts_as_frozen() -> None:
    """Two runs of one snapshot have the same code, whatever the live tree is; its loss is named."""
    then, now = copy.deepcopy(RECORD), copy.deepcopy(RECORD)
    then["code"]["snapshot"] = now["code"]["snapshot"] = "s"  # type: ignore[index]
    now["code"]["commit"] = "b" * 40  # type: ignore[index]
    assert differences(then, now) == []
    del now["code"]["snapshot"]  # type: ignore[attr-defined]
    assert differences(then, now)[0] == (
        "code: the frozen code that it ran is gone; the live code ran."
    )
    resumed = copy.deepcopy(RECORD)
    resumed["execution"]["attempts"] = 3  # type: ignore[index]
    assert differences(resumed, RECORD) == [
        "execution: it went on from checkpoints, in 3 attempts; in one now."
    ]


def test_no_secret_is_recorded(tmp_path: Path) -> None:
    """Of the environment only variables that count are kept; secrets among them are hidden."""
    environ = {
        "PATH": "/usr/bin",
        "WANDB_API_KEY": "canary1",
        "PGPASSWORD": "canary2",
        "NCCL_TOKEN": "canary3",
        "TORCH_HOME": "http://u:canary4@h/x",
        "OMP_NUM_THREADS": "2",
        "SWEEP_STORAGE": "postgresql://u:canary5@h/d",
        "EDITOR": "vi",
    }
    command = (
        "python",
        "t.py",
        "--api-key",
        "canary6",
        "--hf_token=canary7",
        "--max-tokens",
        "5",
        "--url",
        "https://u:canary8@h/",
        "--password",
        "{password}",
    )
    given = Environment(env={"MY_SECRET": "canary9", "MODE": "fast", "WANDB_API_KEY": None})
    record = capture_study(make_study(tmp_path, command, environment=given), environ)
    assert "canary" not in json.dumps(record)
    assert record["environment"]["variables"] == {
        "MODE": "fast",
        "MY_SECRET": "***",
        "NCCL_TOKEN": "***",
        "OMP_NUM_THREADS": "2",
        "TORCH_HOME": "***",
        "WANDB_API_KEY": "***",
    }
    assert record["execution"]["command"] == [
        "python",
        "t.py",
        "--api-key",
        "***",
        "--hf_token=***",
        "--max-tokens",
        "5",
        "--url",
        "https://***@h/",
        "--password",
        "{password}",
    ]


def test_our_own_version_is_recorded(tmp_path: Path) -> None:
    """It is the one that ``sweep --version`` says."""
    record = capture_study(make_study(tmp_path, ("python", "t.py")), {})
    assert record["execution"]["sweep"] == version("sweep-hpo")


def test_many_packages_are_summed_up() -> None:
    """More packages than one reads are counted."""
    other = copy.deepcopy(RECORD)
    other["environment"]["packages"] |= {f"p{i:02d}": "1" for i in range(20)}  # type: ignore[operator]
    got = differences(RECORD, other)
    assert len(got) == 9
    assert got[-1] == "environment: 12 more packages differ."


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://u:p@h/x", "https://***@h/x"),
        ("ssh://git@h/x", "ssh://***@h/x"),
        ("git@github.com:a/b.git", "git@github.com:a/b.git"),
        ("https://h/x@y", "https://h/x@y"),
    ],
)
def test_secrets_in_addresses_are_masked(url: str, masked: str) -> None:
    """A user and password in a URL never reach a record."""
    assert mask(url) == masked


def test_a_conda_environment_by_its_folder(tmp_path: Path) -> None:
    """Conda's packages, Python's over those of the same name; nothing of it is started."""
    site = tmp_path / "lib/python3.12/site-packages"
    for folder in (tmp_path / "conda-meta", tmp_path / "bin", site / "numpy-2.1.dist-info"):
        folder.mkdir(parents=True)
    assert describe_conda(tmp_path)["python"] == "none"
    for name in ("python-3.12.4-h1_0_cpython", "numpy-2.0-py312_0", "cuda-toolkit-12.4.1-0"):
        (tmp_path / "conda-meta" / f"{name}.json").write_text("{}")
    (tmp_path / "conda-meta/history").touch()
    found = describe_conda(tmp_path)
    assert found["python"] == "3.12.4"
    assert found["packages"] == {"cuda-toolkit": "12.4.1", "numpy": "2.1"}


def test_what_one_record_lacks_is_no_difference() -> None:
    """A re-run that never began has no record: its files are not gone."""
    code = {"commit": "a" * 40, "files": {"train.py": "1"}, "submodules": {"lib": "2"}}
    record: dict[str, Any] = {"code": code, "environment": {"python": "3.11"}}
    assert differences(record, {}) == differences({}, record) == []
    modified = ["code: no commit is known now (git was not asked)."]
    assert differences(record, {"code": {"modified": []}}) == modified
    changed = differences(record, {"code": {**code, "files": {}, "submodules": {}}})
    assert changed == ["code: train.py is gone.", "code: the submodule lib has another commit."]
