"""A study that is launched again after its code was changed says what ran what."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sweep as package
from tests.conftest import Sweep, run_sweep
from tests.toys import write_toy


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """Run the command line on a database of the test's own, on the server that all share."""
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


def collected(sweep: Sweep) -> list[dict[str, Any]]:
    ran = sweep("collect", "--format", "json")
    assert ran.code == 0, ran.err
    rows: list[dict[str, Any]] = json.loads(ran.out)
    return rows


@pytest.mark.parametrize("code", [pytest.param("frozen", marks=pytest.mark.long), "live"])
def test_trials_of_different_code_are_told_apart(
    tmp_path: Path, runs: Path, sweep: Sweep, fresh_url: str, monkeypatch, code: str
) -> None:
    """An id a trial in collect, exports, frame and report; with one code there is none."""
    path = write_toy(tmp_path, trials=3, code=code)
    assert sweep("launch", path, "--set", "trials=2", "--wait").code == 0
    assert all("code" not in row for row in collected(sweep))
    assert "different code" not in sweep("collect").out
    script = tmp_path / "train.py"
    script.write_text(script.read_text() + "\n# another one\n")
    assert sweep("launch", path, "--wait").code == 0
    ids = {row["trial"]: row["code"] for row in collected(sweep)}
    assert ids[0] == ids[1] != ids[2]
    assert all(len(one) == 9 for one in ids.values())
    sentence = (
        f"The trials ran different code: 2 trials ran {ids[0]}, 1 trial ran {ids[2]}. "
        "What differs: train.py has changed"
    )
    table = sweep("collect", "--no-plots")
    assert sentence[:70] in " ".join(table.out.split())
    assert ".." not in table.out
    assert ids[2] in table.out
    exported = sweep("collect", "--format", "csv")
    rows = {int(row["trial"]): row for row in csv.DictReader(io.StringIO(exported.out))}
    assert {number: row["code"] for number, row in rows.items()} == ids
    assert sentence[:70] in exported.err
    assert sweep("report", "-o", "report.html").code == 0
    page = (tmp_path / "report.html").read_text()
    assert f"<td>{ids[2]}</td>" in page and sentence[:70] in page
    monkeypatch.setenv("SWEEP_STORAGE", fresh_url)
    with package.load("toy", runs) as results:
        frame = results.trials()
    assert dict(zip(frame["trial"], frame["code"], strict=True)) == ids
