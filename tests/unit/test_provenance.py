"""What a result came from: recorded quickly, without secrets, and compared in sentences."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep import provenance
from sweep.packages import describe_python, list_packages, mask
from sweep.provenance import capture_host, capture_study, differences
from sweep.space import Space
from sweep.study import Environment, Objective, Study

COMMAND = ("python", "train.py", "--lr", "{lr}")


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


def test_a_module_brings_its_package(tmp_path: Path) -> None:
    """With -m the files of the module's package are hashed."""
    (tmp_path / "trainer").mkdir()
    for name in ("trainer/train.py", "trainer/model.py", "alone.py", "other.py"):
        (tmp_path / name).write_text(name)
    command = ("python", "-m", "trainer.train", "--x={x}")
    files = capture_study(make_study(tmp_path, command))["code"]["files"]
    assert sorted(files) == ["trainer/model.py", "trainer/train.py"]
    files = capture_study(make_study(tmp_path, ("python", "-m", "alone")))["code"]["files"]
    assert sorted(files) == ["alone.py"]


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
    monkeypatch.setattr(provenance, "MAX_HASHED_BYTES", 2)
    (tmp_path / "d").write_bytes(b"123")
    study = make_study(tmp_path, data=("d",))
    first = capture_study(study)
    assert "content_sha256" not in first["data"]["d"]
    os.utime(tmp_path / "d", (1, 1))
    assert differences(first, capture_study(study)) == [
        "data: d has other files' names, sizes or times (1 files of 3 bytes, now 1 of 3)."
    ]


def test_the_host() -> None:
    """The machine is described, and the description is JSON."""
    host = capture_host()
    assert sorted(host) == [
        "cpu", "cpus", "cuda_visible_devices", "driver", "gpus", "host", "kernel",
    ]  # fmt: skip
    assert host["cpus"] == len(os.sched_getaffinity(0))
    assert json.loads(json.dumps(host)) == host


def test_gpus_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with commas are kept whole; a tool that fails is said."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'NVIDIA H100, 80GB, 570.1\\nNVIDIA H100, 80GB, 570.1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    host = capture_host()
    assert (host["gpus"], host["driver"]) == (["NVIDIA H100, 80GB"] * 2, "570.1")
    tool.write_text("#!/bin/sh\nexit 9\n")
    host = capture_host()
    assert (host["gpus"], host["driver"]) == ([], "nvidia-smi failed")


RECORD = {
    "code": {"git": "ok", "commit": "a" * 40, "dirty": False, "diff": None, "files": {"t.py": "1"}},
    "environment": {"python": "3.11.7", "packages": {"torch": "2.1", "numpy": "1.0"}},
    "data": {"d": {"files": 1, "bytes": 3, "manifest_sha256": "m", "content_sha256": "c"}},
    "execution": {"host": "n1", "kernel": "6.1", "gpus": ["A100"], "cpus": 4, "cpu": "EPYC"},
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
        ("execution", {"host": "n2", "kernel": "6.2", "driver": "570"}, []),
        (
            "execution",
            {"gpus": [], "cpus": 8},
            [
                "execution: the number of CPUs was 4 and is 8.",
                "execution: the list of GPUs was A100 and is none.",
            ],
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
