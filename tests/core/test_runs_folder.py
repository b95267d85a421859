"""The folder that holds all of a user's studies."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sweep.core.files import make_runs_folder


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_new_runs_folder_is_ignored_by_git(tmp_path: Path, is_repository: bool) -> None:
    """Where it is made within a repository; one that was there is left as it is."""
    if is_repository:
        (tmp_path / ".git").mkdir()
    made = make_runs_folder(tmp_path / "work/runs")
    ignored = made / ".gitignore"
    assert ignored.exists() == is_repository
    if is_repository:
        assert ignored.read_text() == "*\n"
        ignored.unlink()
        make_runs_folder(made)
        assert not ignored.exists()
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
