"""Folders are made and removed whole, whoever else removes there at the same moment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep.core import files
from sweep.core.errors import InputError, SweepError
from sweep.core.files import entries, make_folders, make_private, remove_tree


def fill(folder: Path) -> Path:
    """Make a folder with files and folders in it."""
    for name in ("a", "b", "c"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            (folder / name / f"{number}").touch()
            (folder / f"{name}{number}").touch()
    return folder


@pytest.mark.parametrize("name", ["unlink", "rmdir", "open"])
@pytest.mark.parametrize("turn", [0, 1])
def test_somebody_else_is_quicker_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, turn: int
) -> None:
    """At one file or folder of it: what the other has not come to yet goes as well."""
    folder = fill(tmp_path / "folder")
    call: Callable[..., Any] = getattr(os, name)
    calls: list[Any] = []

    def late(path: Any, *more: Any, **given: Any) -> Any:
        calls.append(path)
        if len(calls) == turn + 1:
            if name == "open":
                subprocess.run(["rm", "-r", folder / path], check=True)
            else:
                call(path, *more, **given)
        return call(path, *more, **given)

    monkeypatch.setattr(os, name, late)
    remove_tree(folder)
    monkeypatch.undo()
    assert len(calls) > turn
    assert not folder.exists()


def test_what_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "none/below"):
        remove_tree(path)


def test_what_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only file system."""
    folder = fill(tmp_path / "folder")

    def refuse(path: Any, **_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(SweepError, match=r"cannot be removed: Permission denied\."):
        remove_tree(folder)


@pytest.mark.parametrize("taken", ["above", "above/between"])
def test_a_folder_above_is_tidied_away_as_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    """By a command that ends, to which it looked empty."""
    folder = tmp_path / "above/between/new"
    folder.parent.mkdir(parents=True)
    mkdir, calls = os.mkdir, []

    def late(path: Any, *more: Any, **given: Any) -> None:
        calls.append(path)
        if len(calls) == 1:
            remove_tree(tmp_path / taken)
        mkdir(path, *more, **given)

    monkeypatch.setattr(os, "mkdir", late)
    make_private(folder)
    assert folder.is_dir() and calls.count(folder) == 2


def test_a_folder_that_cannot_be_made_is_given_up(tmp_path: Path) -> None:
    """A link above leads nowhere: the system says that there is no such file, each time."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        make_folders(tmp_path / "link/new")
    with pytest.raises(InputError, match="is not a folder"):
        make_private(tmp_path / "link")


def test_a_folder_is_tidied_away_once_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it was looked at, and again before its owner was."""
    folder = tmp_path / "new"
    make, check, made = files.make_folders, files.check_owner, []

    def make_and_lose(path: Path) -> None:
        make(path)
        made.append(path)
        if len(made) == 1:
            path.rmdir()

    def lose_and_check(path: Path) -> None:
        if len(made) == 2:
            path.rmdir()
        check(path)

    monkeypatch.setattr(files, "make_folders", make_and_lose)
    monkeypatch.setattr(files, "check_owner", lose_and_check)
    assert make_private(folder) == folder
    assert folder.is_dir() and len(made) == 3


def test_what_lies_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").mkdir()
    assert entries(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert entries(tmp_path / "none") == []
