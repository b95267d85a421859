"""``sweep collect`` of a study that has ended, in each of its formats."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.cli.commands import collected
from tests.conftest import Sweep


def test_collect_json_is_the_contracts(finished: Sweep) -> None:
    """Rows are ranked from the best on, and hold what made them."""
    rows = collected(finished)
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]
    assert sorted(row["trial"] for row in rows) == [0, 1, 2, 3, 4]
    values = [row["value"] for row in rows]
    assert values == sorted(values, reverse=True)
    for row in rows:
        assert row["state"] == "complete"
        assert row["value"] == 1 - (row["params"]["x"] - 0.25) ** 2 - 1 / 4
        assert row["attempts"] == 1
        assert row["duration_s"] > 0
    assert len({row["seed"] for row in rows}) == 5


def test_csv_reads_back_equal(finished: Sweep, tmp_path: Path) -> None:
    """What CSV holds are the same numbers, to the last digit."""
    file = tmp_path / "out.csv"
    assert finished("collect", "-o", file).code == 0
    with file.open(newline="") as stream:
        got = [
            (int(row["trial"]), float(row["value"]), float(row["params.x"]), row["params.kind"])
            for row in csv.DictReader(stream)
        ]
    assert got == expected_cells(finished)


def test_parquet_reads_back_equal(finished: Sweep, tmp_path: Path) -> None:
    """What Parquet holds are the same values, with their types."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow (extra: report)")
    file = tmp_path / "out.parquet"
    assert finished("collect", "-o", file).code == 0
    rows = parquet.read_table(file).to_pylist()
    got = [(row["trial"], row["value"], row["params.x"], row["params.kind"]) for row in rows]
    assert got == expected_cells(finished)


@pytest.mark.parametrize(("format_", "cell"), [("markdown", r"\s*\|\s*"), ("latex", r"\s*&\s*")])
def test_tables_for_people_hold_the_same(finished: Sweep, format_: str, cell: str) -> None:
    """A Markdown or LaTeX table has a row a trial, in the same order, with the same values."""
    ran = finished("collect", "--format", format_)
    assert (ran.code, ran.err) == (0, "")
    got = []
    for line in ran.out.splitlines():
        cells = re.split(cell, line.strip().strip("|").removesuffix(r"\\").strip())
        if len(cells) > 3 and cells[0].strip().isdigit():
            got.append((int(cells[0]), int(cells[1]), line))
    wanted = expected_cells(finished)
    assert [(rank, trial) for rank, trial, _ in got] == [
        (rank, cells[0]) for rank, cells in enumerate(wanted, 1)
    ]
    for (_, _, line), (_, value, x, _) in zip(got, wanted, strict=True):
        numbers = [float(text) for text in re.findall(r"\d+\.\d+(?:e-?\d+)?", line)]
        assert any(number == pytest.approx(value, rel=1e-4) for number in numbers)
        assert any(number == pytest.approx(x, rel=1e-3) for number in numbers)


def expected_cells(finished: Sweep) -> list[tuple[int, float, float, str]]:
    return [
        (row["trial"], row["value"], row["params"]["x"], row["params"]["kind"])
        for row in collected(finished)
    ]


def test_tables_for_papers(finished: Sweep) -> None:
    """The columns that are asked for, in their order; an unknown one is named with those that
    there are. --metric keeps the layout of the table."""
    ran = finished(
        "collect", "--top", "1", "--columns", "score,x", "--digits", "3", "--format", "latex"
    )
    best = collected(finished)[0]
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[3:6:2] == [
        r"score & x \\",
        rf"\textbf{{{best['value']:.3f}}} & {best['params']['x']:.3g} \\",
    ]
    ran = finished("collect", "--columns", "rank,scores")
    assert ran.code == 2
    assert "there is no column 'scores'. Did you mean score" in ran.err
    assert finished("collect", "--digits", "3", "--format", "csv").code == 2
    plain, shown = finished("collect"), finished("collect", "--metric", "score:min")
    heading = shown.out.splitlines()[0].split()
    assert heading[2] == "score:min"
    assert [word for word in heading if word != "score:min"] == plain.out.splitlines()[0].split()
