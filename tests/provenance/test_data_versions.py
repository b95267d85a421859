"""What DVC, git, Git LFS, git-annex and the Hugging Face hub say of data, read from their files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sweep.provenance import data
from sweep.provenance.data import capture_data
from sweep.provenance.data_versions import find_pointers, find_versions, tracking_file
from sweep.provenance.differences import differences

A, B = "0123456789abcdef" * 2, "fedcba9876543210" * 2
REVISION, OTHER = "1" * 40, "2" * 40
SHA = "ab" * 32
LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{SHA}\nsize 12345\n"
KEY = f"SHA256E-s12--{SHA}.bin"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return differences({"data": {"d": before}}, {"data": {"d": after}})


def test_the_dvc_file_beside_the_data(tmp_path: Path) -> None:
    """Old and new hash of large data are named, also where the files look the same."""
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds/x").write_text("1")
    note = tmp_path / "birds.dvc"
    note.write_text(f"outs:\n- md5: {A}.dir\n  size: 1\n  nfiles: 1\n  hash: md5\n  path: birds\n")
    (tmp_path / "other.dvc").write_text(f"outs:\n- md5: {B}\n  path: other\n")
    before = capture_data(tmp_path / "birds")
    assert before["versions"] == {"birds.dvc": f"{A}.dir"}
    note.write_text(note.read_text().replace(A, B))
    after = capture_data(tmp_path / "birds", known=before)
    assert after["versions"] == {"birds.dvc": f"{B}.dir"}
    assert changed(before, after) == []  # both were read whole, and are the same
    del before["content_sha256"], after["content_sha256"]
    said = f"birds.dvc was {A}.dir and is {B}.dir"
    assert changed(before, after) == [
        f"data: d has another version ({said}), though its files look the same."
    ]
    (tmp_path / "birds/x").write_text("12")
    assert changed(before, capture_data(tmp_path / "birds")) == [
        "data: d has other files, or sizes of them (1 files of 1 bytes, now 1 of 2; " + said + ")."
    ]


def test_dvc_elsewhere_in_its_repository(tmp_path: Path) -> None:
    """A lock of a pipeline, a working folder, a folder that holds the data, and files within."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "data/raw/train").mkdir(parents=True)
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  split:\n    foreach: [a]\n    do: {cmd: x}\n    wdir: data\n  fit: {cmd: y}\n"
    )
    (tmp_path / "dvc.lock").write_text(
        "schema: '2.0'\nstages:\n"
        f"  split@a:\n    cmd: x\n    outs:\n    - {{path: split, md5: {A}.dir, nfiles: 2}}\n"
        f"  fit:\n    cmd: y\n    deps:\n    - {{path: data/raw, md5: {A}.dir}}\n"
        f"    outs:\n    - {{path: model.pkl, md5: {B}}}\n"
    )
    (tmp_path / "data/notes.dvc").write_text(
        f"md5: {B}\nwdir: ..\nouts:\n- path: data/raw\n  etag: '\"{A}\"'\n"
    )
    assert find_versions(tmp_path / "data/split") == {"../dvc.lock of split": f"{A}.dir"}
    assert find_versions(tmp_path / "model.pkl") == {"dvc.lock of model.pkl": B}
    within = {"../notes.dvc": f'"{A}"'}
    assert find_versions(tmp_path / "data/raw/train") == within
    assert find_versions(tmp_path / "data", ["notes.dvc"]) == {
        "data/notes.dvc": f'"{A}"',
        "dvc.lock of data/split": f"{A}.dir",
    }
    assert find_versions(tmp_path / "elsewhere") == {}


@pytest.mark.parametrize(
    "text", ["", "outs: 3\n", "outs: [1, {path: 2}]\n", "outs: [\n", "[1]\n", "\0", "outs: &a [*a]"]
)
def test_a_dvc_file_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x.dvc").write_text(text)
    assert find_versions(tmp_path / "x") == {}


def test_versions_in_a_bucket(tmp_path: Path) -> None:
    """Where the folder has no hash of its own, those of its files count."""
    (tmp_path / "x").mkdir()
    note = "outs:\n- path: x\n  files:\n  - {relpath: a, md5: 1a, cloud: {s3: {version_id: v1}}}\n"
    (tmp_path / "x.dvc").write_text(note)
    before = find_versions(tmp_path / "x")
    (tmp_path / "x.dvc").write_text(note.replace("v1", "v2"))
    after = find_versions(tmp_path / "x")
    assert before.keys() == after.keys() == {"x.dvc"}
    assert before != after


def test_the_cache_of_the_hugging_face_hub(tmp_path: Path) -> None:
    """A snapshot is its revision; a repository has those of its branches; so has a cache."""
    repository = tmp_path / "hub/datasets--org--birds"
    (repository / "refs/pr").mkdir(parents=True)
    (repository / "refs/main").write_text(REVISION)
    (repository / "refs/pr/1").write_text(OTHER)
    (repository / "snapshots" / REVISION / "data").mkdir(parents=True)
    (repository / "snapshots/main").symlink_to(REVISION)
    snapshot = {"Hugging Face's org/birds": REVISION}
    assert find_versions(repository / "snapshots" / REVISION / "data") == snapshot
    assert find_versions(repository / "snapshots/main") == snapshot
    refs = {"Hugging Face's org/birds main": REVISION, "Hugging Face's org/birds pr/1": OTHER}
    assert find_versions(repository) == find_versions(tmp_path / "hub") == refs


def test_a_download_from_the_hub(tmp_path: Path) -> None:
    """``hf download --local-dir`` notes the revision of each file."""
    notes = tmp_path / "birds/.cache/huggingface/download/data"
    notes.mkdir(parents=True)
    (notes / "a.parquet.metadata").write_text(f"{REVISION}\n{A}\n1700000000.0\n")
    (notes.parent / "b.metadata").write_text(f"{OTHER}\n{A}\n1700000000.0\n")
    found = {"Hugging Face's download": f"{REVISION} {OTHER}"}
    assert find_versions(tmp_path / "birds") == found
    assert find_versions(tmp_path / "birds/b") == {"Hugging Face's download": OTHER}


def test_data_that_git_tracks(tmp_path: Path) -> None:
    """A file of LFS by its SHA-256, others by blob, tree or commit; what is ignored, not at all."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/big.bin").write_text(LFS)
    (tmp_path / "data/small").write_text("1")
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("ignored\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    (tmp_path / "data/big.bin").write_bytes(b"what was fetched")
    (tmp_path / "ignored").mkdir()
    assert find_versions(tmp_path / "data/big.bin") == {"Git LFS's pointer": SHA}
    blob = git(tmp_path, "rev-parse", "HEAD:data/small")
    assert find_versions(tmp_path / "data/small") == {"git's blob": blob}
    tree = git(tmp_path, "rev-parse", "HEAD:data")
    assert find_versions(tmp_path / "data") == {"git's tree": tree}
    assert find_versions(tmp_path) == {"git's commit": git(tmp_path, "rev-parse", "HEAD")}
    assert find_versions(tmp_path / "ignored") == {}
    assert {file.name for file in data.list_files(tmp_path)} == {
        *(".gitignore", "data/big.bin", "data/small")
    }


def test_files_that_git_annex_keeps(tmp_path: Path) -> None:
    """The key of each, here or not; one that is not here is no missing data set."""
    objects = tmp_path / ".git/annex/objects/aB/Cd" / KEY
    objects.mkdir(parents=True)
    (objects / KEY).write_bytes(b"123456789012")
    folder = tmp_path / "birds"
    folder.mkdir()
    (folder / "here.bin").symlink_to(f"../.git/annex/objects/aB/Cd/{KEY}/{KEY}")
    (folder / "away.bin").symlink_to(f"../.git/annex/objects/xx/yy/{KEY}0/{KEY}0")
    (folder / "unlocked.bin").write_text(f"/annex/objects/{KEY}1\n")
    (folder / "label.txt").write_text("1")
    found = find_pointers(folder, 100)
    assert dict(found.annex) == {"here.bin": KEY, "away.bin": f"{KEY}0", "unlocked.bin": f"{KEY}1"}
    assert found.missing == ["away.bin", "unlocked.bin"]
    assert found.fetch == "git annex get"
    before = capture_data(folder)
    assert (before["unfetched"], before["files"]) == (2, 3)
    (folder / "away.bin").unlink()
    (folder / "away.bin").symlink_to(f"../.git/annex/objects/xx/yy/{KEY}9/{KEY}9")
    after = capture_data(folder)
    keys = "git-annex's keys"
    assert list(before["pointers"]) == [keys]
    assert before["pointers"][keys] != after["pointers"][keys]
    one = find_pointers(folder / "here.bin", 1)
    assert (one.versions(), one.missing) == ({"git-annex's key": KEY}, [])


def test_pointers_of_git_lfs(tmp_path: Path) -> None:
    """Where the content was not fetched, the pointer is the data: its hash is named."""
    (tmp_path / "x.bin").write_text(LFS)
    before = capture_data(tmp_path / "x.bin")
    assert before["pointers"] == {"Git LFS's pointer": SHA}
    assert before["unfetched"] == 1
    (tmp_path / "x.bin").write_text(LFS.replace("ab", "cd"))
    after = capture_data(tmp_path / "x.bin")
    assert changed(before, after) == [
        "data: d has other content (1 files of 130 bytes, now 1 of 130; Git LFS's pointer was "
        "abababababab and is cdcdcdcdcdcd)."
    ]
    (tmp_path / "x.bin").write_text(LFS * 8)  # too long for one
    assert find_pointers(tmp_path / "x.bin", 1).missing == []


def test_other_data_altogether() -> None:
    """A study that reads another path now is told so; a record without data says nothing."""
    one = {"files": 1, "bytes": 1}
    a, b = {"data": {"/v1": one, "/x": one}}, {"data": {"/v2": one, "/x": one}}
    assert differences(a, b) == ["data: what is read was /v1 and is /v2."]
    assert differences(a, {"data": {}}) == differences({}, b) == []


def test_what_dvc_has_not_pulled(tmp_path: Path) -> None:
    (tmp_path / "x.dvc").write_text(f"outs:\n- md5: {A}\n  path: x\n")
    assert tracking_file(tmp_path / "x") == tmp_path / "x.dvc"
    assert capture_data(tmp_path / "x") == {"missing": True, "versions": {"x.dvc": A}}
    (tmp_path / "x").touch()
    assert tracking_file(tmp_path / "x") is None
    assert tracking_file(Path(os.sep)) is None
