"""Rows of arrays and of Parquet: they come back exactly; what is not understood is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import InputError
from tests.tasks.sharding.sources import pack, picture, read_shards

numpy = pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("PIL")


def write_parquet(path: Path, columns: dict[str, Any], metadata: Any = None) -> None:
    from pyarrow import parquet

    table = pyarrow.table(columns)
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, row_group_size=3)


@pytest.mark.parametrize("packed", [numpy.savez, numpy.savez_compressed])
def test_rows_of_arrays(tmp_path: Path, packed: Any) -> None:
    """Of any type and shape, in their order; splits by names; labels as a column as well."""
    source = numpy.random.default_rng(0)
    x = source.normal(size=(10, 2, 3)).astype("float32")
    y = numpy.arange(10) % 3
    packed(tmp_path / "d.npz", x_train=x, y_train=y[:, None], x_test=x[:4] + 1, y_test=y[:4])
    assert pack(tmp_path / "d.npz", tmp_path / "s").examples == {"train": 10, "test": 4}
    found = read_shards(tmp_path / "s")
    arrays = [numpy.load(io.BytesIO(each["npy"])) for each in found]
    assert numpy.array_equal(numpy.stack(arrays), x)
    assert arrays[0].dtype == x.dtype
    assert [int(each["cls"]) for each in found] == y.tolist()
    assert len(read_shards(tmp_path / "s", "test")) == 4


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"a": [1], "b": [1]}, "not understood: a, b"),
        ({"x": [1, 2], "y": [1]}, "no classes of the rows of x"),
        ({"x": [1, 2], "y": [0.5, 1.0]}, "y of float64"),
        ({"x": [1, 2], "y": [-1, 1]}, "no classes"),
        ({"x": [1], "y": [1], "z": [1]}, "not understood: x, y, z"),
        ({"x": numpy.asfortranarray([[1, 2], [3, 4]]), "y": [0, 1]}, "do not lie one after"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], expected: str) -> None:
    """By their names."""
    numpy.savez(tmp_path / "d.npz", **{k: numpy.asanyarray(v) for k, v in arrays.items()})
    with pytest.raises(InputError, match=expected):
        pack(tmp_path / "d.npz", tmp_path / "s")


def test_rows_of_parquet(tmp_path: Path) -> None:
    """Pictures, other bytes, classes by text, and all else, with floats exactly; in order."""
    count = 7
    write_parquet(
        tmp_path / "d.parquet",
        {
            "image": [{"bytes": picture(n), "path": f"{n}.png"} for n in range(count)],
            "raw": [bytes([n, 0, n]) for n in range(count)],
            "label": [("dog", "cat")[n % 2] for n in range(count)],
            "score": [n / 3 for n in range(count)],
            "words": [["ä", None] for _ in range(count)],
        },
    )
    pack(tmp_path / "d.parquet", tmp_path / "s")
    found = read_shards(tmp_path / "s")
    assert [each["png"] for each in found] == [picture(n) for n in range(count)]
    assert [each["raw.bin"] for each in found] == [bytes([n, 0, n]) for n in range(count)]
    assert [int(each["cls"]) for each in found] == [(n + 1) % 2 for n in range(count)]
    rest = [json.loads(each["json"]) for each in found]
    assert [each["score"] for each in rest] == [n / 3 for n in range(count)]
    assert rest[3] == {"image.path": "3.png", "score": 1.0, "words": ["ä", None]}
    index = json.loads((tmp_path / "s" / "index.json").read_text())
    assert index["classes"] == ["cat", "dog"]


def test_parquet_as_hugging_face_lays_it_out(tmp_path: Path) -> None:
    """Splits by the names of files, classes by the features; several files of a split."""
    features = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
    for name, rows in (("train-00000-of-00002", 4), ("train-00001-of-00002", 3), ("test-0", 2)):
        columns = {
            "label": [n % 2 for n in range(rows)],
            "text": [f"{name}{n}" for n in range(rows)],
        }
        write_parquet(tmp_path / "d" / "data" / f"{name}.parquet", columns, features)
    assert pack(tmp_path / "d" / "data", tmp_path / "s").examples == {"test": 2, "train": 7}
    assert json.loads((tmp_path / "s" / "index.json").read_text())["classes"] == ["no", "yes"]
    texts = [json.loads(each["json"])["text"] for each in read_shards(tmp_path / "s")]
    assert texts[4] == "train-00001-of-000020"


@pytest.mark.parametrize(
    ("columns", "more", "expected"),
    [
        ({"when": pyarrow.array([1], pyarrow.timestamp("s"))}, {}, "column when .* not stored"),
        ({"label": [0.5]}, {}, "column label .double. is no class"),
        ({"label": [None, 1]}, {}, "d.parquet:0: has no label"),
        ({"label": [-1]}, {}, "counted from 0"),
        ({"x": [1]}, {"label_column": "y"}, "has no column y: it has x"),
        ({"x": [1]}, {"labels": Path("l.csv")}, "--labels is for a folder of files"),
    ],
)
def test_parquet_that_is_not_understood(
    tmp_path: Path, columns: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    """The column, or the row."""
    write_parquet(tmp_path / "d.parquet", columns)
    with pytest.raises(InputError, match=expected):
        pack(tmp_path / "d.parquet", tmp_path / "s", **more)


def test_a_column_is_left_out(tmp_path: Path) -> None:
    """One that would be refused."""
    when = pyarrow.array([1], pyarrow.timestamp("s"))
    write_parquet(tmp_path / "d.parquet", {"when": when, "x": [1]})
    pack(tmp_path / "d.parquet", tmp_path / "s", leave_out=("when",))
    assert [json.loads(each["json"]) for each in read_shards(tmp_path / "s")] == [{"x": 1}]


def test_other_kinds_of_sources_are_refused(tmp_path: Path) -> None:
    """A file that is no table, and one that only has its name."""
    (tmp_path / "d.txt").write_text("x")
    (tmp_path / "d.npz").write_text("x")
    (tmp_path / "d.parquet").write_text("x")
    for name, expected in (
        ("d.txt", "of no kind that is understood"),
        ("d.npz", "no .npz file that can be read"),
        ("d.parquet", "cannot be read as Parquet"),
    ):
        with pytest.raises(InputError, match=expected):
            pack(tmp_path / name, tmp_path / "s")
