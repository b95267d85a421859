"""Data that were not fetched are refused, or warned of, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.control.check import pointers
from sweep.core.errors import InputError
from sweep.core.space import Space
from sweep.core.study import DataSet, Objective, Study

LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 12345\n"


def make_study(folder: Path, name: str) -> Study:
    return Study(
        "s",
        ("true",),
        (Objective("x"),),
        Space(),
        workdir=str(folder),
        data=(name,),
        datasets={"birds": DataSet(name)},
        executor="local",
    )


def test_a_pointer_where_a_file_is_expected(tmp_path: Path) -> None:
    """It is named with its hash and with what fetches it; the file itself passes."""
    (tmp_path / "birds.tar").write_text(LFS)
    study = make_study(tmp_path, "birds.tar")
    with pytest.raises(InputError) as caught:
        pointers.refuse_unfetched(study)
    assert caught.value.message == (
        f"data.birds: {tmp_path}/birds.tar was not fetched: it only points at its content (Git "
        f"LFS's pointer {'ab' * 32})."
    )
    assert caught.value.hint == f"Fetch it: git lfs pull (in {tmp_path})."
    (tmp_path / "birds.tar").write_text("whole")
    pointers.refuse_unfetched(study)


def test_an_annexed_file_that_is_not_here(tmp_path: Path) -> None:
    (tmp_path / "birds.tar").symlink_to(".git/annex/objects/a/b/MD5-s1--aa/MD5-s1--aa")
    with pytest.raises(InputError, match=r"git-annex's key MD5-s1--aa.*\n?"):
        pointers.refuse_unfetched(make_study(tmp_path, "birds.tar"))


def test_what_dvc_would_fetch(tmp_path: Path) -> None:
    """Its file is there, the data are not; data without one are another check's."""
    pointers.refuse_unfetched(make_study(tmp_path, "birds"))
    (tmp_path / "birds.dvc").write_text("outs:\n- md5: aa\n  path: birds\n")
    with pytest.raises(InputError) as caught:
        pointers.refuse_unfetched(make_study(tmp_path, "birds"))
    assert caught.value.message == (
        f"data.birds: {tmp_path}/birds is not there, only birds.dvc, by which DVC fetches it."
    )
    assert caught.value.hint == f"Fetch it: dvc pull {tmp_path}/birds.dvc"


def test_a_folder_of_which_some_were_fetched(tmp_path: Path) -> None:
    """A warning with one of them; part of a data set may be all that is wanted."""
    (tmp_path / "birds/train").mkdir(parents=True)
    (tmp_path / "birds/train/a.png").write_text("whole")
    study = make_study(tmp_path, "birds")
    assert pointers.look(study) == []
    (tmp_path / "birds/train/b.png").write_text(LFS)
    (line,) = pointers.look(study)
    assert (line.name, line.state) == ("data.birds", "warning")
    assert line.text == (
        f"1 file only points at content that was not fetched, {tmp_path}/birds/train/b.png for one"
    )
    assert line.advice == f"Fetch them: git lfs pull (in {tmp_path}/birds)."
    pointers.refuse_unfetched(study)
