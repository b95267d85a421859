"""What of a record pip can install again, and what it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.provenance.lock import write_lock
from sweep.provenance.packages import describe_python


def lock(**packages: str) -> tuple[list[str], list[str]]:
    named = {name.replace("_", "-"): version for name, version in packages.items()}
    made = write_lock({"runtime": "venv", "python": "3.11.7", "packages": named}, "of a test")
    assert made.text.startswith("# of a test\n# Python 3.11.7\n")
    return made.text.splitlines()[2:], list(made.notes)


def test_versions_are_pinned_and_pip_is_left_out() -> None:
    lines, notes = lock(numpy="1.26.4", pip="24.0", scikit_learn="1.5.0")
    assert (lines, notes) == (["numpy==1.26.4", "scikit-learn==1.5.0"], [])


def test_torch_s_own_builds_name_their_index() -> None:
    lines, _ = lock(torch="2.6.0+cu124", torchvision="0.21.0+cu124", numpy="2.0.0")
    assert lines == [
        "--extra-index-url https://download.pytorch.org/whl/cu124",
        "numpy==2.0.0",
        "torch==2.6.0+cu124",
        "torchvision==0.21.0+cu124",
    ]


def test_what_came_from_elsewhere() -> None:
    """A repository by its commit, a folder by its path, an address with a password not at all."""
    commit = "0a1b" * 10
    lines, notes = lock(
        a=f"1.0 @ https://github.com/x/a@{commit}",
        b="1.0 @ https://host/b-1.0-py3-none-any.whl",
        c="0.1 @ file:///home/me/c",
        d=f"1.0 @ https://***@host/d@{commit}",
    )
    assert lines == [
        f"a @ git+https://github.com/x/a@{commit}",
        "b @ https://host/b-1.0-py3-none-any.whl",
        "c @ file:///home/me/c",
        f"# d @ git+https://***@host/d@{commit}",
    ]
    assert [note.split(" came")[0] for note in notes] == ["c", "d"]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"runtime": "none"}, "No packages are recorded"),
        ({"runtime": "apptainer", "python": "none", "packages": {}}, "No packages are recorded"),
        ({"runtime": "conda", "interpreter": "/e/bin/python", "packages": {"a": "1"}}, "conda's"),
    ],
)
def test_what_pip_cannot_have(record: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        write_lock(record, "x")
    assert raised.value.hint


def test_pip_takes_it(tmp_path: Path) -> None:
    """Of what this Python has pip finds all installed already: nothing is fetched."""
    found = describe_python(Path(sys.executable))
    packages = {n: v for n, v in found["packages"].items() if "file:" not in v}  # type: ignore
    path = tmp_path / "requirements.lock"
    path.write_text(write_lock({**found, "packages": packages}, "this Python").text)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--dry-run", "-r"]
    done = subprocess.run([*pip, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Would install" not in done.stdout
