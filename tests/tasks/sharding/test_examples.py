"""What lies in a folder: classes by folders and by tables, splits, and what is not understood."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.tasks.sharding.examples import check_content, number_classes, read_folder
from tests.tasks.sharding.sources import pack, picture, read_shards, write_pictures

pytest.importorskip("PIL")


def names(source: Path, split: str = "train", **more: object) -> dict[str, int | None]:
    found = read_folder(source, **more)  # type: ignore[arg-type]
    loaded = [load() for load in found.splits[split].read(0)]
    assert len(loaded) == found.splits[split].count
    return {each.name: each.label for each in loaded}


def test_folders_are_classes(tmp_path: Path) -> None:
    """By the order of their names, or by their number; hidden files are none."""
    write_pictures(tmp_path / "named", 4, ("dog", "cat"))
    (tmp_path / "named" / "cat" / ".DS_Store").write_text("x")
    assert names(tmp_path / "named") == {
        "dog/0.png": 1,
        "cat/1.png": 0,
        "dog/2.png": 1,
        "cat/3.png": 0,
    }
    write_pictures(tmp_path / "numbered", 3, ("10", "2", "0"))
    assert names(tmp_path / "numbered") == {"10/0.png": 10, "2/1.png": 2, "0/2.png": 0}
    assert read_folder(tmp_path / "named").classes == ["cat", "dog"]
    assert read_folder(tmp_path / "numbered").classes is None


def test_names_that_are_no_plain_numbers_are_names() -> None:
    """007 would be the same number as 7."""
    assert number_classes(["007", "7"]) == ({"007": 0, "7": 1}, ["007", "7"])


def test_splits_share_their_classes(tmp_path: Path) -> None:
    """train, valid and test; a folder that is called so among others is a class."""
    write_pictures(tmp_path / "s" / "train", 4, ("a", "b"))
    write_pictures(tmp_path / "s" / "valid", 2, ("b",))
    write_pictures(tmp_path / "s" / "test", 1, ("a",))
    found = read_folder(tmp_path / "s")
    assert {split: each.count for split, each in found.splits.items()} == {
        "train": 4,
        "val": 2,
        "test": 1,
    }
    assert set(names(tmp_path / "s", "val").values()) == {1}
    write_pictures(tmp_path / "c", 4, ("train", "plane"))
    assert Counter(names(tmp_path / "c").values()) == {0: 2, 1: 2}


def test_the_order_is_of_the_seed(tmp_path: Path) -> None:
    """The same for the same seed and names; classes are mixed."""
    write_pictures(tmp_path, 30)
    assert list(names(tmp_path)) == list(names(tmp_path))
    assert list(names(tmp_path)) != list(names(tmp_path, seed=1))
    labels = list(names(tmp_path).values())
    assert labels != sorted(labels, key=str)


@pytest.mark.parametrize(
    "text",
    [
        "file,label\nx/0.png,dog\nx/1.png,cat\nx/2.png,dog\n",
        "id,other,label\n0,?,dog\n1,?,cat\n2,?,dog\n",
        "\ufefffilename,class\n./x/0.png,dog\n1.png,cat\n\nx/2,dog\n",
    ],
)
def test_labels_of_a_table(tmp_path: Path, text: str) -> None:
    """With folders or without, with an extension or without."""
    write_pictures(tmp_path / "d", 3, ("x",))
    table = tmp_path / "d" / "labels.csv"
    table.write_text(text, encoding="utf-8")
    assert names(tmp_path / "d", labels=table) == {"x/0.png": 1, "x/1.png": 0, "x/2.png": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "names no column of files"),
        ("a,b\n0,1\n", "names no column of files, or none of labels \\(it is a, b\\)"),
        ("file,label\n0.png,\n", "labels.csv:2: has no file or no label"),
        ("file,label\n0.png,a\n0.png,b\n", "0.png stands in it twice"),
        ("file,label\n0.png,a\n", "1 of 2 files have no class in .*: x/1.png"),
        ("file,label\n0.png,a\n1.png,a\n2.png,a\n", "names 1 files that are not there: 2.png"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """What is missing on which side is named."""
    write_pictures(tmp_path / "d", 2, ("x",))
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(InputError, match=expected):
        read_folder(tmp_path / "d", tmp_path / "labels.csv")


def test_what_is_not_understood_is_refused(tmp_path: Path) -> None:
    """Other files, files without a class, nothing at all; patterns leave files out."""
    write_pictures(tmp_path, 2)
    (tmp_path / "cat" / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"neither a picture nor an array: cat/notes.txt"):
        read_folder(tmp_path)
    assert len(names(tmp_path, ignore=["*.txt"])) == 2
    (tmp_path / "loose.png").write_bytes(picture(9))
    with pytest.raises(InputError, match=r"1 of 3 files have no class by a folder: loose.png"):
        read_folder(tmp_path, ignore=["*.txt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no pictures"):
        read_folder(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.png", b"", "x.png: no picture of a known kind"),
        ("x.png", picture(1)[:48], "x.png: .*"),
        ("x.jpg", b"version https://git-lfs", "x.jpg: no picture of a known kind"),
        ("x.npy", b"\x93NUMPY\x01", "x.npy: .*"),
    ],
)
def test_unreadable_content_is_named(name: str, content: bytes, expected: str) -> None:
    """A picture that is cut off, and what is none."""
    from sweep.tasks.sharding.examples import UnreadableExample

    with pytest.raises(UnreadableExample, match=expected):
        check_content(name, name.rpartition(".")[2], content)


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    """Byte for byte, each with its class."""
    write_pictures(tmp_path / "d", 20)
    pack(tmp_path / "d", tmp_path / "s")
    wanted = {
        (path.read_bytes(), b"0" if path.parent.name == "cat" else b"1")
        for path in (tmp_path / "d").rglob("*.png")
    }
    assert {(each["png"], each["cls"]) for each in read_shards(tmp_path / "s")} == wanted
