"""Streaming: the same training as in memory, each example once, through kills; what is wrong."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")
numpy = pytest.importorskip("numpy")

from sweep.report import Reporter, decode  # noqa: E402
from tests.ports import quiet_port  # noqa: E402
from tests.tasks.sharding.sources import pack, picture, write_pictures  # noqa: E402
from trainer import checkpoint, config, data, loop, sources, stream, train  # noqa: E402
from trainer.config import InputError, Options  # noqa: E402
from trainer.failures import RanksError  # noqa: E402
from trainer.run import Run  # noqa: E402


def write_arrays(path: Path, count: int, pixels: int = 8) -> None:
    """Write an .npz of images with a class each, with parts for training, validation and test."""
    source = numpy.random.default_rng(0)
    found = {}
    for word, size in (("train", count), ("val", 20), ("test", 10)):
        found[f"y_{word}"] = numpy.arange(size) % 3
        noise = source.integers(0, 80, (size, pixels, pixels))
        found[f"x_{word}"] = (noise + 60 * found[f"y_{word}"][:, None, None]).astype("u1")
    numpy.savez(path, **found)


@pytest.fixture(scope="module")
def small_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 training images of 8 x 8 in a few shards, which are mixed all at a time."""
    folder = tmp_path_factory.mktemp("shards")
    write_arrays(folder / "d.npz", 96)
    pack(folder / "d.npz", folder / "s", 48 << 10)
    assert 2 < len(list((folder / "s").glob("train-*.tar"))) <= stream.MIXED
    return folder / "s"


def options(folder: Path, *more: str, kind: str = "shards") -> Options:
    argv = ["--data", kind, "--data-dir", str(folder), "--device", "cpu", "--batch-size", "16"]
    return config.parse([*argv, "--epochs", "2", "--width", "8", *more], {})


def curve(folder: Path, given: Options) -> list[dict[str, float]]:
    folder.mkdir()
    journal = folder / "metrics.jsonl"
    loop.train(given, Reporter({"SWEEP_METRICS": str(journal)}), lambda line: None)
    found = [decode(line)[2] for line in journal.read_text().splitlines()]
    return [{k: v for k, v in each.items() if k != "epoch_s"} for each in found]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_streamed_training_is_the_same_as_one_in_memory(
    tmp_path: Path, small_shards: Path, workers: str
) -> None:
    """Bit for bit, with dropout and augmentation, where few shards make the order the same."""
    more = ("--dropout", "0.2", "--augment", "crop-flip", "--model", "cnn", "--layers", "1")
    whole = curve(tmp_path / "memory", options(small_shards, *more))
    streamed = options(small_shards, *more, "--stream", "--workers", workers)
    assert curve(tmp_path / "stream", streamed) == whole
    assert len(whole) == 2


def all_numbers(sampler: stream.StreamSampler) -> list[list[int]]:
    return [batch.positions.tolist() for batch in sampler.rest_of_epoch(torch.device("cpu"))]


def test_each_example_is_shown_once_an_epoch(tmp_path: Path) -> None:
    """In an order of the seed and the epoch; some shards are mixed at a time; a resume goes on."""
    write_arrays(tmp_path / "d.npz", 50)
    pack(tmp_path / "d.npz", tmp_path / "s", 5 << 10)
    given = options(tmp_path / "s", "--stream", "--workers", "0")
    train_part = data.load(given).train
    assert isinstance(train_part, stream.Streamed)
    assert len(train_part.source.starts) > 2 * stream.MIXED
    sampler = stream.StreamSampler(train_part, 16, seed=0)
    first = all_numbers(sampler)
    assert [len(each) for each in first] == [16, 16, 16, 2]
    assert sorted(itertools.chain(*first)) == list(range(50))
    # An example comes with those of eight shards, of whatever place they have.
    assert max(first[0]) - min(first[0]) > 16
    sampler.end_epoch()
    second = all_numbers(sampler)
    assert sorted(itertools.chain(*second)) == list(range(50))
    assert second != first
    assert all_numbers(stream.StreamSampler(train_part, 16, seed=1)) != first
    later = stream.StreamSampler(train_part, 16, seed=0)
    later.epoch, later.batch = 1, 2
    assert all_numbers(later) == second[2:]


def test_ranks_share_each_batch(tmp_path: Path) -> None:
    """Without overlap or loss; the last batch is filled up with the first examples, counted."""
    write_arrays(tmp_path / "d.npz", 50)
    pack(tmp_path / "d.npz", tmp_path / "s")
    train_part = data.load(options(tmp_path / "s", "--stream", "--workers", "0")).train
    assert isinstance(train_part, stream.Streamed)
    ranks = [stream.StreamSampler(train_part, 16 // 4 * 4, 0, rank, 4) for rank in range(4)]
    found = [all_numbers(each) for each in ranks]
    assert [len(each) for each in found[0]] == [4, 4, 4, 1]
    assert {len(each[-1]) for each in found} == {1}
    shown = Counter(number for each in found for batch in each for number in batch)
    assert set(shown) == set(range(50))
    assert sum(shown.values()) - 50 == ranks[0].padding == 2
    with pytest.raises(InputError, match="3 ranks cannot share it evenly"):
        stream.StreamSampler(train_part, 16, 0, 0, 3)


def log_positions(folder: Path, die: tuple[int, int] | None = None) -> Callable[[int], None]:
    """Return a plant: each step's examples are noted; rank 1 dies before the given batch."""

    def plant(rank: int) -> None:
        step = Run.step
        notes = open(folder / f"shown.{rank}", "a")  # noqa: SIM115

        def noted(self: Run, batch: Any) -> None:
            place = (self.sampler.epoch, self.sampler.batch)
            if rank == 1 and place == die:
                os.kill(os.getpid(), signal.SIGKILL)
            step(self, batch)
            notes.write(json.dumps([*place, batch.positions.tolist()]) + "\n")
            notes.flush()

        Run.step = noted  # type: ignore[method-assign]

    return plant


def fork(
    world: int, folder: Path, argv: list[str], plant: Callable[[int], None], resume: str
) -> Any:
    """Run the ranks; return their exit codes."""
    folder.mkdir(exist_ok=True)
    port = str(quiet_port())
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.environ.update(
                    SWEEP_METRICS=str(folder / "metrics.jsonl"),
                    SWEEP_RESUME=resume,
                    SWEEP_CHECKPOINT_DIR=str(folder / "checkpoints"),
                    SWEEP_DDP_TIMEOUT_S="30",
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE=str(world),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=port,
                )
                sys.stdout = sys.stderr = open(folder / f"log.{rank}", "a")  # noqa: SIM115
                plant(rank)
                code = train.main(argv)
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.real
@pytest.mark.long  # ranks that share a streamed batch, and a killed reader, are tested below
def test_two_ranks_killed_in_mid_epoch_show_each_example_once(tmp_path: Path) -> None:
    """On the surviving lineage: what was shown up to the checkpoint, and after it by the next."""
    write_arrays(tmp_path / "d.npz", 41)
    pack(tmp_path / "d.npz", tmp_path / "s", 32 << 10)
    argv = ["--data", "shards", "--data-dir", str(tmp_path / "s"), "--stream", "--workers", "1"]
    argv += ["--device", "cpu", "--batch-size", "10", "--width", "8", "--epochs", "2"]
    argv += ["--checkpoint-every", "0.0001s"]
    first, second = tmp_path / "1", tmp_path / "2"
    codes = fork(2, first, argv, lambda rank: log_positions(first, (1, 3))(rank), "")
    assert codes[1] == -signal.SIGKILL, (first / "log.0").read_text()
    assert codes[0] != 0
    newest = checkpoint.find(first / "checkpoints")[0]
    state = checkpoint.load(newest)
    place = (state["epoch"], state["batch"])
    assert (0, 1) <= place <= (1, 3)
    assert fork(2, second, argv, log_positions(second), str(newest)) == [0, 0], (
        second / "log.0"
    ).read_text()
    shown: dict[int, Counter[int]] = {0: Counter(), 1: Counter()}
    for folder in (first, second):
        for rank in (0, 1):
            for line in (folder / f"shown.{rank}").read_text().splitlines():
                epoch, batch, positions = json.loads(line)
                if folder == first and (epoch, batch) >= place:
                    continue
                assert folder == first or (epoch, batch) >= place
                shown[epoch].update(positions)
    padding = 1
    for epoch, found in shown.items():
        assert set(found) == set(range(41)), epoch
        assert sum(found.values()) == 41 + padding
        assert Counter(found.values()) == {1: 40, 2: 1}
    said = (second / "log.0").read_text()
    assert "41 examples, 2 ranks: 1 examples are shown twice in each epoch" in said


def test_images_and_parquet_are_streamed_and_read_whole(tmp_path: Path) -> None:
    """The same examples of each, whichever way; scaled on request; tenths for missing parts."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    write_pictures(tmp_path / "d", 40)
    rows = [{"image": picture(n), "label": ("cat", "dog")[n % 2]} for n in range(40)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet", row_group_size=3)
    pack(tmp_path / "d", tmp_path / "s")
    found = {}
    for kind, place in (("images", "d"), ("parquet", "d.parquet"), ("shards", "s")):
        for more in (("--stream", "--workers", "0"), ()):
            loaded = data.load(options(tmp_path / place, *more, kind=kind), with_test=True)
            assert loaded.classes == 2
            assert loaded.test is not None
            parts = (loaded.train, loaded.validation, loaded.test)
            assert [len(each) for each in parts] == [32, 4, 4]
            pixels = set()
            for each in parts:
                for part in each.parts(0, 1, 7):
                    values = zip(part.images.tolist(), part.labels.tolist(), strict=True)
                    pixels |= {(str(image), label) for image, label in values}
            found[kind, more] = pixels
    assert len(next(iter(found.values()))) == 40
    assert len({frozenset(each) for each in found.values()}) == 1
    scaled = data.load(options(tmp_path / "d", "--stream", "--image-size", "6", kind="images"))
    assert tuple(scaled.train.shape) == (3, 6, 6)


def test_shards_of_others_are_streamed_without_an_index(tmp_path: Path) -> None:
    """As WebDataset writes them: each example is found by reading the file's heads."""
    with tarfile.open(tmp_path / "train-0.tar", "w") as opened:
        for number in range(30):
            name = f"{'long-' * 30}{number}" if number % 3 == 0 else f"{number}"
            for extension, content in (("cls", b"%d" % (number % 2)), ("PNG", picture(number))):
                info = tarfile.TarInfo(f"{name}.{extension}")
                info.size = len(content)
                opened.addfile(info, io.BytesIO(content))
    source = sources.Shards(sources.find_shards(tmp_path)["train"])
    assert source.labels.tolist() == [n % 2 for n in range(30)]
    assert [source.read(n)[0, 0, 0].item() for n in range(30)] == list(range(30))


def test_a_part_of_the_data_is_drawn(small_shards: Path) -> None:
    """By the split's seed: from all shards, not the first ones."""
    given = options(small_shards, "--stream", "--workers", "0", "--train-fraction", "0.25")
    part = data.load(given).train
    assert isinstance(part, stream.Streamed)
    numbers = part.numbers.tolist()
    assert len(numbers) == 24
    assert numbers == sorted(numbers)
    assert numbers[-1] > 48


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_cannot_be_read_is_named(tmp_path: Path, workers: str) -> None:
    """A damaged example, by a process that reads as well; one of another size."""
    write_pictures(tmp_path / "d", 20)
    (tmp_path / "d" / "cat" / "zz.png").write_text("no picture")
    given = options(tmp_path / "d", "--stream", "--workers", workers, kind="images")
    with pytest.raises(InputError, match=r"zz\.png: cannot be read .no picture of a known kind"):
        data.load(given)
        loop.train(given, Reporter({}), lambda line: None)
    (tmp_path / "d" / "cat" / "zz.png").write_bytes(picture(3, pixels=9))
    with pytest.raises(InputError, match=r"an image of \(3, 9, 9\).*among images of \(3, 4, 4\)"):
        loop.train(given, Reporter({}), lambda line: None)


def test_damaged_folders_of_shards_are_refused(tmp_path: Path, small_shards: Path) -> None:
    """A shard of another size, a damaged index, an unfinished folder, another kind of data."""
    import shutil

    def refused(expected: str, *more: str) -> None:
        with pytest.raises(InputError, match=expected):
            data.load(options(tmp_path / "s", "--stream", *more))

    shutil.copytree(small_shards, tmp_path / "s")
    index = tmp_path / "s" / "train-000001.idx"
    index.write_bytes(index.read_bytes()[:-5])
    refused("train-000001.idx: is damaged")
    index.unlink()
    data.load(options(tmp_path / "s", "--stream"))
    shard = tmp_path / "s" / "train-000002.tar"
    shard.write_bytes(shard.read_bytes()[:-512])
    refused("train-000002.tar: is not the shard of")
    shard.unlink()
    refused("train-000002.tar: is not the shard of")
    (tmp_path / "s" / "index.json").rename(tmp_path / "s" / "plan.json")
    refused("is unfinished. Let `sweep data shard` end first")
    with pytest.raises(InputError, match="--stream: digits is no data set that is streamed"):
        data.load(Options(data="digits", stream=True))


@pytest.mark.real
def test_a_killed_reader_ends_the_training_with_a_word(
    small_shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel ends one that has no memory left."""

    def die(self: Any, number: int) -> Any:
        if torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, number)

    read = sources.Shards.read
    monkeypatch.setattr(sources.Shards, "read", die)
    given = options(small_shards, "--stream", "--workers", "1")
    with pytest.raises(RanksError, match="a process that reads examples was killed"):
        loop.train(given, Reporter({}), lambda line: None)
