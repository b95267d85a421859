"""The published MNIST files, where they are: SWEEP_DATA or ./data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import skip_or_fail

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import Reporter  # noqa: E402
from trainer import data, fetch, loop  # noqa: E402
from trainer.config import InputError, Options  # noqa: E402

pytestmark = [pytest.mark.mnist, pytest.mark.real]


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return data.find_folder("mnist")
    except InputError:
        skip_or_fail("mnist", "the files are not here: python -m trainer.data fetch mnist")


def test_the_files_are_the_published_ones(folder: Path) -> None:
    """Every digest that `fetch` compares is that of the real file."""
    for file in fetch.DIGESTS["mnist"][1]:
        fetch.check("mnist", file, (folder / file).read_bytes())


def test_the_parts_are_55000_5000_and_the_untouched_10000(folder: Path) -> None:
    """Training and validation come from the 60,000; the test set is the published one."""
    got = data.load(Options(data="mnist"), with_test=True)
    assert got.test is not None
    assert [len(got.train), len(got.validation), len(got.test)] == [55000, 5000, 10000]
    assert torch.bincount(got.test.labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert data.load(Options(data="mnist")).test is None


def test_another_sets_files_are_not_taken_for_fashion(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two sets use the same file names."""
    monkeypatch.setenv("SWEEP_DATA", str(folder))
    with pytest.raises(InputError, match="holds the files of mnist, not of fashion-mnist"):
        data.find_folder("fashion-mnist")


def test_the_cnn_learns_mnist_from_a_tenth_in_an_epoch(folder: Path) -> None:
    """5,500 images, seconds: above 0.9."""
    result = loop.train(
        Options(data="mnist", train_fraction=0.1, epochs=1), Reporter({}), lambda line: None
    )
    assert result.best_accuracy > 0.9
