"""Scripts of bash, run for real: what is said of a task is what bash runs, or is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studyfile.bash_real import FILES, find_difference, read_cases


@pytest.mark.parametrize(("script", "is_known"), read_cases())
def test_tasks_run_what_bash_runs(script: str, is_known: bool, tmp_path: Path, stubs: Path) -> None:
    """Word by word; what is too much for the reader it says."""
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode())
    found = [find_difference(script, task, tmp_path, stubs, {}) for task in (0, 1)]
    assert found == ["" if is_known else "not known"] * 2
