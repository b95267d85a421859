"""Checkpoints: whole, named by their content, two kept, the older one as a fall-back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")
numpy = pytest.importorskip("numpy")

from trainer import checkpoint  # noqa: E402


def save(folder: Path, *places: tuple[int, int]) -> list[Path]:
    return [checkpoint.save(folder, {"at": list(place)}, *place) for place in places]


def test_a_state_comes_back_equal(tmp_path: Path) -> None:
    """Tensors and plain values survive the round trip."""
    path = checkpoint.save(tmp_path / "new", {"a": torch.arange(3), "b": [1, "x", None]}, 1)
    state = checkpoint.load(path)
    assert (state["a"].tolist(), state["b"]) == ([0, 1, 2], [1, "x", None])


def test_two_are_kept_and_nothing_else_lies_there(tmp_path: Path) -> None:
    """Inode quotas: two files, no sidecar, no temporary one."""
    (tmp_path / ".epoch-0001.99.tmp").write_bytes(b"left by a killed run")
    paths = save(tmp_path, (1, 0), (2, 0), (2, 120), (3, 0))
    assert sorted(tmp_path.iterdir()) == sorted(paths[-2:])
    assert checkpoint.find(tmp_path) == [paths[3], paths[2]]


def test_names_sort_by_age(tmp_path: Path) -> None:
    """Whoever sorts the names finds the newest last."""
    first, second = save(tmp_path, (2, 0), (2, 120))
    (third,) = save(tmp_path, (2, 1500))
    assert first.name < second.name < third.name < "epoch-0003-0"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "gone"])
def test_the_older_one_serves_where_the_newest_is_unreadable(tmp_path: Path, damage: str) -> None:
    """Falls back one, and says so."""
    older, newest = save(tmp_path, (1, 0), (2, 0))
    content = newest.read_bytes()
    newest.unlink()
    if damage == "truncated":
        newest.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        newest.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    elif damage == "empty":
        newest.write_bytes(b"")
    said: list[str] = []
    assert checkpoint.load_newest(newest, said.append) == ({"at": [1, 0]}, older)
    assert len(said) == 1
    assert said[0].startswith(f"checkpoint not used: {newest}: ")


def test_no_readable_checkpoint_is_none(tmp_path: Path) -> None:
    """The caller decides whether that is an error."""
    assert checkpoint.load_newest(tmp_path, lambda line: None) is None
    assert checkpoint.load_newest(tmp_path / "x.pt", lambda line: None) is None


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    """A planted pickle is refused."""

    class Planted:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "run",))

    torch.save({"a": Planted()}, tmp_path / "planted.pt")
    with pytest.raises(checkpoint.Unreadable, match="cannot be loaded"):
        checkpoint.load(tmp_path / "planted.pt")
    assert not (tmp_path / "run").exists()


def test_a_full_disk_leaves_the_earlier_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails removes its temporary file and touches nothing else."""
    (path,) = save(tmp_path, (1, 0))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, (2, 0))
    assert list(tmp_path.iterdir()) == [path]


def test_random_states_come_back(tmp_path: Path) -> None:
    """Python's, NumPy's and torch's sources go on where they were."""

    def draw() -> list[float]:
        return [random.random(), float(numpy.random.rand()), float(torch.rand(()))]

    path = checkpoint.save(tmp_path, {"random": checkpoint.random_states()}, 1)
    expected = draw()
    draw()
    checkpoint.restore_random_states(checkpoint.load(path)["random"])
    assert draw() == expected
