"""A benchmark that is ended keeps what it has measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kept_rows import append_rows, read_rows


def test_it_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    path = tmp_path / "results/rows.csv"
    assert read_rows(path) == []

    def rows() -> Iterator[dict[str, Any]]:
        yield {"seed": 0, "regret": 0.5}
        assert read_rows(path) == [{"seed": "0", "regret": "0.5"}], "written at once"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        append_rows(path, ("seed", "regret"), rows())
    append_rows(path, ("seed", "regret"), [{"seed": 1, "regret": 0.25}])
    assert [row["seed"] for row in read_rows(path)] == ["0", "1"]
