"""The embedded server listens where the study file says, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import run_sweep, stop_runs
from tests.toys import write_toy


def test_the_server_listens_where_the_study_says(tmp_path: Path) -> None:
    """Whoever starts it: launch, a task, a later command; an interface that lacks is said."""
    runs = tmp_path / "runs"

    def sweep(*words: object) -> str:
        ran = run_sweep(*words, runs=runs, cwd=tmp_path)
        assert ran.code == 0, ran.err
        return ran.out

    def listen() -> str:
        return str(json.loads(sweep("db", "status", "--json"))["listen"])

    study = write_toy(tmp_path, trials=2, storage="{embedded: {listen: 127.0.0.5}}")
    try:
        sweep("launch", study, "--wait")
        assert listen() == "127.0.0.5"
        assert "@127.0.0.5:" in sweep("db", "url")
        sweep("db", "stop")
        sweep("status", "toy")
        assert listen() == "127.0.0.5"
        other = write_toy(
            tmp_path, name="other", file="other.yaml", storage="{embedded: {listen: ib7}}"
        )
        for words in (["launch", other], ["check", other, "--on-node", "--executor", "local"]):
            ran = run_sweep(*words, runs=runs, cwd=tmp_path)
            assert ran.code == 1
            assert "storage.embedded.listen is ib7, and" in ran.out + ran.err
        assert not (runs / "other").exists()
    finally:
        stop_runs(runs)
