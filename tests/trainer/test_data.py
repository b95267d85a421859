"""Data sets, splits, the order of batches, and the files of IDX format."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from trainer import data, fetch, split  # noqa: E402
from trainer.config import InputError, Options  # noqa: E402


def rows(part: split.Split) -> list[bytes]:
    return [bytes(image.flatten().tolist()) for image in part.images]


def test_digits_are_split_into_1197_300_and_300() -> None:
    """The three parts have the stated sizes, shapes and pixel range."""
    got = data.load(Options(), with_test=True)
    assert got.test is not None
    assert [len(got.train), len(got.validation), len(got.test)] == [1197, 300, 300]
    assert tuple(got.train.images.shape) == (1197, 1, 8, 8)
    assert (int(got.train.images.min()), int(got.train.images.max())) == (0, 16)
    assert got.train.labels.unique().tolist() == list(range(10))


def test_digits_parts_make_up_the_whole_set_once() -> None:
    """No image is lost or in two parts (images that occur twice count twice)."""
    got = data.load(Options(), with_test=True)
    assert got.test is not None
    parts = rows(got.train) + rows(got.validation) + rows(got.test)
    assert sorted(parts) == sorted(rows(data._read_digits()))


def test_the_split_follows_its_own_seed_and_not_the_runs() -> None:
    """All trials of a study validate on the same images."""
    first = data.load(Options(seed=1)).validation
    assert torch.equal(first.images, data.load(Options(seed=2)).validation.images)
    assert not torch.equal(first.images, data.load(Options(split_seed=1)).validation.images)


def test_the_test_set_is_absent_unless_asked_for() -> None:
    """A search cannot look at what it does not hold."""
    assert data.load(Options()).test is None


def test_a_fraction_keeps_that_part_of_the_training_data_only() -> None:
    """Validation stays whole."""
    got = data.load(Options(train_fraction=0.1))
    assert (len(got.train), len(got.validation)) == (120, 300)
    with pytest.raises(InputError, match="leaves no training data"):
        data.load(Options(train_fraction=0.0001))


def test_synthetic_data_is_a_function_of_size_and_split_seed() -> None:
    """The same options give the same images."""
    options = Options(data="synthetic", synthetic_size=100)
    first, second = data.load(options, with_test=True), data.load(options, with_test=True)
    assert first.test is not None
    assert torch.equal(first.train.images, second.train.images)
    assert (len(first.train), len(first.validation), len(first.test)) == (100, 12, 13)


def drain(sampler: split.Sampler) -> list[list[int]]:
    return [batch.tolist() for batch in sampler.rest_of_epoch(torch.device("cpu"))]


def test_an_epoch_visits_examples_once_and_leaves_out_the_short_batch() -> None:
    """10 examples in batches of 4 make 2 batches of distinct ones."""
    got = drain(split.Sampler(10, 4, seed=0))
    assert [len(batch) for batch in got] == [4, 4]
    assert len({index for batch in got for index in batch}) == 8


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    """The order depends on the seed and the epoch, and on nothing else."""
    sampler = split.Sampler(10, 5, seed=0)
    first = drain(sampler)
    sampler.end_epoch()
    torch.manual_seed(123)
    again = split.Sampler(10, 5, seed=0)
    assert drain(again) == first
    assert drain(sampler) != first
    assert drain(split.Sampler(10, 5, seed=1)) != first


def test_a_sampler_goes_on_in_the_middle_of_an_epoch() -> None:
    """Setting epoch and batch continues the same order."""
    whole = drain(split.Sampler(100, 10, seed=3))
    later = split.Sampler(100, 10, seed=3)
    later.batch = 7
    assert drain(later) == whole[7:]


def test_ranks_share_each_batch_without_overlap() -> None:
    """The parts of two ranks make up the batch of one process."""
    whole = drain(split.Sampler(20, 8, seed=0))
    parts = [drain(split.Sampler(20, 8, seed=0, rank=rank, world=2)) for rank in (0, 1)]
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(b) for b in whole]


def test_a_set_smaller_than_a_batch_makes_one_batch() -> None:
    """No epoch without a step."""
    assert [len(batch) for batch in drain(split.Sampler(5, 64, seed=0))] == [5]


def idx(shape: tuple[int, ...], values: bytes) -> bytes:
    head = b"\0\0\x08" + bytes([len(shape)])
    content = head + b"".join(n.to_bytes(4, "big") for n in shape) + values
    return gzip.compress(content, mtime=0)


def test_idx_files_are_read_in_their_shape(tmp_path: Path) -> None:
    """Three dimensions, row by row."""
    (tmp_path / "a.gz").write_bytes(idx((2, 1, 3), bytes(range(6))))
    assert data.read_idx(tmp_path / "a.gz").tolist() == [[[0, 1, 2]], [[3, 4, 5]]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"<html>not found</html>", "cannot be unpacked"),
        (idx((2, 3), bytes(6))[:-9], "cannot be unpacked"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc", mtime=0), "not an IDX file of bytes"),
        (gzip.compress(b"\0\0\x0d\x01\0\0\0\x03abc", mtime=0), "not an IDX file of bytes"),
        (gzip.compress(b"", mtime=0), "not an IDX file of bytes"),
        (None, "no such file"),
    ],
)
def test_damaged_idx_files_are_named_with_the_way_out(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    """Cut, foreign, mistyped, empty or missing: a message, not a traceback."""
    if content is not None:
        (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(InputError, match=expected) as caught:
        data.read_idx(tmp_path / "a.gz")
    assert str(caught.value).endswith("Fetch it again with `python -m trainer.data fetch`.")


def test_missing_files_say_what_to_run_and_what_to_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Online: one command. Offline: four files and a folder."""
    monkeypatch.setenv("SWEEP_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        data.load(Options(data="mnist"))
    text = str(caught.value)
    assert "python -m trainer.data fetch mnist" in text
    assert [file for file in fetch.DIGESTS["mnist"][1] if file not in text] == []
    assert str(tmp_path / "mnist") in text


def test_folders_are_found_by_name_first_then_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DIR/mnist beats DIR; --data-dir beats SWEEP_DATA."""
    direct, named = tmp_path / "direct", tmp_path / "parent"
    for folder in (direct, named / "mnist", named):
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "train-labels-idx1-ubyte.gz").write_bytes(idx((1,), b"\0"))
    monkeypatch.setenv("SWEEP_DATA", str(named))
    assert data.find_folder("mnist") == named / "mnist"
    assert data.find_folder("mnist", str(direct)) == direct
