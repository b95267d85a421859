"""CIFAR-10 files, tar shards, pictures, augmentation and the confusion matrix as a picture."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")
numpy = pytest.importorskip("numpy")

from sweep.report import Reporter  # noqa: E402
from trainer import augment, cifar, confusion, data, evaluate, loop, png, shards  # noqa: E402
from trainer.config import InputError, Options  # noqa: E402
from trainer.split import Split  # noqa: E402


def write_cifar(folder: Path, each: int = 4) -> list[bytes]:
    """Write small files of the real format; record i of the set has label i % 10 and bytes i."""
    folder.mkdir(parents=True)
    records = [bytes([i % 10]) + bytes([i]) * 3072 for i in range(6 * each)]
    for number, file in enumerate((*cifar.TRAIN, *cifar.TEST)):
        (folder / file).write_bytes(b"".join(records[number * each : (number + 1) * each]))
    return records


def test_cifar_is_read_from_files_and_from_the_archive(tmp_path: Path) -> None:
    """Labels, planes and order are the same from both; a tenth validates; the test set is apart."""
    write_cifar(tmp_path / "files" / "cifar-10-batches-bin")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / cifar.ARCHIVE, "w:gz") as archive:
        archive.add(tmp_path / "files" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    for name in ("files", "packed"):
        place = cifar.find(str(tmp_path / name))
        got = cifar.read(place, cifar.TRAIN)
        assert tuple(got.images.shape) == (20, 3, 32, 32)
        assert got.labels.tolist() == [i % 10 for i in range(20)]
        assert got.images[:, 2, 31, 31].tolist() == list(range(20))
        whole = data.load(Options(data="cifar10", data_dir=str(tmp_path / name)), with_test=True)
        assert whole.test is not None
        assert [len(whole.train), len(whole.validation), len(whole.test)] == [18, 2, 4]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "0 bytes are no whole number"),
        (bytes(3072), "3072 bytes are no whole number of CIFAR-10 records of 3073 bytes"),
        (b"\x0b" + bytes(3072), "label 11 in a set of ten classes"),
        (None, "cannot be read \\(No such file or directory\\)"),
    ],
)
def test_damaged_cifar_files_are_named(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    """A message, not a traceback."""
    write_cifar(tmp_path / "cifar10")
    if content is None:
        (tmp_path / "cifar10" / cifar.TRAIN[2]).unlink()
    else:
        (tmp_path / "cifar10" / cifar.TRAIN[2]).write_bytes(content)
    with pytest.raises(InputError, match=expected):
        data.load(Options(data="cifar10", data_dir=str(tmp_path)))


def test_missing_cifar_says_what_to_download(tmp_path: Path) -> None:
    """The address, the digest and the folder."""
    with pytest.raises(InputError, match=r"(?s)cifar-10-binary.tar.gz.*MD5.*SWEEP_DATA"):
        cifar.find(str(tmp_path))


def write_shard(path: Path, examples: list[dict[str, bytes]]) -> None:
    with tarfile.open(path, "w") as archive:
        for number, fields in enumerate(examples):
            for extension, content in fields.items():
                member = tarfile.TarInfo(f"a/{path.stem}{number:06d}.{extension}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def array(value: int, shape: tuple[int, ...] = (6, 5, 3), kind: str = "uint8") -> bytes:
    stream = io.BytesIO()
    numpy.save(stream, numpy.full(shape, value, dtype=kind))
    return stream.getvalue()


def test_shards_of_arrays_and_pictures_are_read_and_split(tmp_path: Path) -> None:
    """Two training shards, a test shard; validation is a tenth of the training examples."""
    picture = torch.arange(90).to(torch.uint8).view(6, 5, 3)
    write_shard(
        tmp_path / "train-0.tar", [{"cls": str(i % 3).encode(), "npy": array(i)} for i in range(19)]
    )
    write_shard(tmp_path / "train-1.tar", [{"cls": b"2\n", "png": png.write(picture)}])
    write_shard(tmp_path / "test-0.tar", [{"npy": array(7), "cls": b"1"}])
    got = data.load(Options(data="shards", data_dir=str(tmp_path)), with_test=True)
    assert got.test is not None
    assert [len(got.train), len(got.validation), len(got.test), got.classes] == [18, 2, 1, 3]
    last = shards.read_part([tmp_path / "train-1.tar"])
    assert torch.equal(last.images[0], picture.permute(2, 0, 1))
    assert last.labels.tolist() == [2]


def test_a_run_trains_on_shards(tmp_path: Path) -> None:
    """Grey images of a size of their own, with a class count from the labels."""
    write_shard(
        tmp_path / "train-0.tar",
        [{"cls": str(i % 2).encode(), "npy": array(200 * (i % 2) + i, (8, 6))} for i in range(50)],
    )
    options = Options(data="shards", data_dir=str(tmp_path), model="mlp", epochs=3, batch_size=8)
    assert loop.train(options, Reporter({}), lambda line: None).best_accuracy == 1.0


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ({"cls": b"x", "npy": array(1)}, "needs a .cls file with a whole number .got 'x'"),
        ({"npy": array(1)}, "needs a .cls file with a whole number .got ''"),
        ({"cls": b"1", "txt": b""}, "needs a .npy or a picture beside its .cls .has .txt"),
        ({"cls": b"1", "jpg": b""}, "jpg: .*(cannot be read|needs Pillow)"),
        ({"cls": b"1"}, "has nothing else"),
        ({"cls": b"1", "npy": array(1, (2, 2))}, "an image of .1, 2, 2.*among images of .3, 6, 5"),
        ({"cls": b"1", "npy": array(1, kind="float32")}, "must be unsigned bytes"),
        ({"cls": b"1", "npy": b"junk"}, "npy: cannot be read"),
        ({"cls": b"1", "png": b"junk"}, "png: (cannot be read .no picture|is not a PNG file)"),
    ],
)
def test_bad_shards_name_the_example(
    tmp_path: Path, example: dict[str, bytes], expected: str
) -> None:
    """The shard, the example and what is wrong with it."""
    write_shard(tmp_path / "train-0.tar", [{"cls": b"0", "npy": array(1)}, example])
    with pytest.raises(InputError, match=r"train-0.tar: a/train-0000001.*" + expected):
        shards.read(tmp_path, 0, with_test=False)


def test_no_shards_and_cut_shards_are_said(tmp_path: Path) -> None:
    """Not an empty data set."""
    with pytest.raises(InputError, match=r"holds no train-\*.tar"):
        shards.read(tmp_path, 0, with_test=False)
    write_shard(tmp_path / "train-0.tar", [{"cls": b"0", "npy": array(1, (40, 40))}])
    whole = (tmp_path / "train-0.tar").read_bytes()
    (tmp_path / "train-0.tar").write_bytes(whole[:1800])
    with pytest.raises(InputError, match="is no whole tar file"):
        shards.read(tmp_path, 0, with_test=False)


def encode(kind: int, rows: list[bytes], width: int, palette: bytes = b"") -> bytes:
    """A PNG file with filter bytes as given: what other programs write."""
    head = struct.pack(">IIBBBBB", width, len(rows), 8, kind, 0, 0, 0)
    chunks = [
        (b"IHDR", head),
        *([(b"PLTE", palette)] if palette else []),
        (b"IDAT", zlib.compress(b"".join(rows))),
        (b"IEND", b""),
    ]
    return png._START + b"".join(png._chunk(name, part) for name, part in chunks)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            encode(0, [b"\0\1\2", b"\1\5\1", b"\2\1\1", b"\3\1\1", b"\4\1\1"], 2),
            [[[1, 2], [5, 6], [6, 7], [4, 6], [5, 7]]],
        ),
        (encode(4, [b"\1\1\xff\1\0"], 2), [[[1, 2]]]),
        (encode(2, [b"\1\1\2\3\1\1\1"], 2), [[[1, 2]], [[2, 3]], [[3, 4]]]),
        (encode(3, [b"\0\1\0"], 2, b"\1\2\3\4\5\6"), [[[4, 1]], [[5, 2]], [[6, 3]]]),
    ],
)
def test_png_files_are_read(content: bytes, expected: list[Any]) -> None:
    """All five filters of rows, grey, alpha, colours and palettes."""
    assert png.read(content).tolist() == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (encode(0, [b"\0\1\2"], 2)[:-20], "a damaged PNG file"),
        (encode(0, [b"\0\1\2"], 2).replace(b"IHDR", b"IHDX"), "a damaged PNG file"),
        (encode(5, [b"\0\1\2"], 2), "of a kind that is not read"),
    ],
)
def test_other_png_files_are_refused(content: bytes, expected: str) -> None:
    """Never read as something that they are not."""
    with pytest.raises(ValueError, match=expected):
        png.read(content)


def test_augmented_images_are_shifted_and_mirrored_copies() -> None:
    """Each is a window of the padded image or its mirror; labels are not touched."""
    images = torch.randint(1, 255, (40, 2, 6, 6), dtype=torch.uint8)
    made = augment.build("crop-flip", images, seed=3)
    assert made is not None
    made.begin_epoch(0)
    index = torch.randperm(40)[:25]
    got = made.take(index)
    padded = torch.nn.functional.pad(images[index], [1] * 4)
    windows = [padded[:, :, y : y + 6, x : x + 6] for y in range(3) for x in range(3)]
    candidates = torch.stack(windows + [each.flip(3) for each in windows], 1)
    found = (candidates == got[:, None]).flatten(2).all(2).sum(1)
    assert (found >= 1).all()
    assert len({bytes(image.flatten().tolist()) for image in got}) == 25


def test_augmentation_depends_on_seed_epoch_and_example_alone() -> None:
    """So it is the same on any number of ranks and after a resume."""
    images = torch.randint(255, (20, 1, 28, 28), dtype=torch.uint8)

    def taken(seed: int, epoch: int, index: Any) -> Any:
        made = augment.build("crop", images, seed)
        assert made is not None
        made.begin_epoch(epoch)
        return made.take(index)

    order = torch.randperm(20)
    whole = taken(0, 1, order)
    torch.manual_seed(99)
    assert torch.equal(torch.cat([taken(0, 1, order[:7]), taken(0, 1, order[7:])]), whole)
    assert not torch.equal(taken(0, 2, order), whole)
    assert not torch.equal(taken(1, 1, order), whole)
    assert augment.build("none", images, 0) is None


def test_a_confusion_matrix_is_drawn(tmp_path: Path) -> None:
    """Shares are shades: a full cell is dark, an empty one white, a half-full one between."""
    confusion.draw([[30, 0], [5, 5]], tmp_path / "c.png")
    picture = png.read((tmp_path / "c.png").read_bytes())
    assert tuple(picture.shape) == (3, 144, 144)
    corners = [
        picture[:, 48 * row + 3, 48 * column + 3].tolist() for row in (1, 2) for column in (1, 2)
    ]
    assert corners == [[8, 48, 107], [255, 255, 255], [131, 151, 181], [131, 151, 181]]


def test_the_evaluation_writes_metrics_and_picture(tmp_path: Path) -> None:
    """Of a checkpoint of a network for other classes and shapes than digits."""
    options = Options(
        data="synthetic",
        synthetic_size=100,
        synthetic_pixels=12,
        synthetic_channels=3,
        epochs=1,
        output=str(tmp_path),
        model="resnet",
        layers=1,
        width=8,
    )
    loop.train(options, Reporter({}), lambda line: None)
    code = evaluate.main(
        [str(tmp_path), "--output", str(tmp_path / "m.json"), "--picture", str(tmp_path / "c.png")]
    )
    assert code == 0
    assert json.loads((tmp_path / "m.json").read_text())["count"] == 13
    assert tuple(png.read((tmp_path / "c.png").read_bytes()).shape) == (3, 528, 528)


def test_parts_of_ranks_have_no_padding() -> None:
    """13 examples over 4 ranks: each is counted once, in one rank."""

    class Part(evaluate.Ranks):
        def sum(self, value: Any) -> Any:
            return value

    images = torch.arange(13).to(torch.uint8).view(13, 1, 1, 1)
    split = Split(images, torch.zeros(13, dtype=torch.int64))

    def network(pixels: Any) -> Any:
        seen.extend(pixels.flatten().tolist())
        return torch.zeros(len(pixels), 2)

    network.eval = lambda: None  # type: ignore[attr-defined]
    seen: list[int] = []
    for rank in range(4):
        evaluate.measure(network, split, 2, Part(rank, rank, 4))  # type: ignore[arg-type]
    assert sorted(seen) == list(range(13))
