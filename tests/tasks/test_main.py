"""What a task is called with decides what it does; what it does not know is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.errors import EXIT_INPUT
from sweep.tasks import conclude, fetch_data, main, pull, serve_database, side_jobs, stage_here


@pytest.mark.parametrize(
    ("options", "module"),
    [
        ([], pull),
        (["--finalise", "sweep-toy-1"], conclude),
        (["--serve"], serve_database),
        (["--host"], serve_database),
        (["--fetch"], fetch_data),
        (["--fetch-alone"], fetch_data),
        (["--stage", "data/step-1"], stage_here),
        (["--rerun", "3"], side_jobs),
        (["--command", "2"], side_jobs),
        (["--measure"], side_jobs),
        (["--check"], side_jobs),
        (["--build", "plan.json"], side_jobs),
        (["--build", "plan.json", "force"], side_jobs),
        (["--shell"], side_jobs),
        (["--try"], side_jobs),
        (["--profile"], side_jobs),
    ],
)
def test_each_option_has_its_module(options: list[str], module: object) -> None:
    assert main.work_of(["/runs/toy", *options]) is module


@pytest.mark.parametrize(
    "options", [["--nope"], ["--rerun"], ["--check", "now"], ["--build"], ["toy"], [""]]
)
def test_an_option_that_no_task_knows_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """A script of another version's, say: it pulls no trial then, and is no fault of sweep's."""
    (tmp_path / "toy").mkdir()
    assert main.main([str(tmp_path / "toy"), *options]) == EXIT_INPUT
    said = capfd.readouterr()
    assert said.out == f"sweep: A task of sweep knows no {' '.join(options)!r}.\n"
    assert said.err == ""
    assert [path.name for path in tmp_path.rglob("*")] == ["toy"]
