"""The database hangs or is stopped: training goes on, and what it reported arrives later."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sweep.storage.embedded.server import running
from tests.chaos.scene import Scene, read_journal
from tests.postgres_fixture import held_with_children, running_server


def count_lines(scene: Scene) -> int:
    return sum(len(read_journal(path)) for path in scene.root.glob("trials/*/attempts/*/metrics.*"))


def watch(scene: Scene, away_s: float) -> None:
    """Assert that the trainings report on, to their end, while the database is away."""
    began, before = time.monotonic(), count_lines(scene)
    trainings = set(scene.trainings())
    assert len(trainings) == 2
    scene.gate.touch()
    scene.wait_for(lambda: count_lines(scene) == 2 * 2 * scene.steps)
    assert set(scene.trainings()) <= trainings  # the same processes have trained
    assert count_lines(scene) > before
    while time.monotonic() - began < away_s:
        time.sleep(0.5)


def begin(scene: Scene) -> None:
    """Launch, and wait until two trials have reported two steps, of two metrics each."""
    scene.write().launch()
    scene.wait_for(lambda: count_lines(scene) == 2 * 2 * 2)


def end(scene: Scene) -> None:
    scene.wait()
    records = scene.check()
    # Nobody was restarted for it.
    assert [len(record.attempts) for record in records] == [1] * scene.trials


@pytest.mark.parametrize("away_s", [6.0, pytest.param(30.0, marks=pytest.mark.long)])
def test_the_embedded_server_hangs(away_s: float, tmp_path: Path, runs: Path, sweep: Any) -> None:
    """All its processes are stopped (SIGSTOP) for a while; trials end meanwhile."""
    scene = Scene(tmp_path, runs, sweep, None, trials=3, steps=20, pause_s=0.05, gated=True)
    begin(scene)
    server = running(runs / ".postgres")
    assert server is not None
    with held_with_children(server.pid):
        watch(scene, away_s)
    end(scene)


LONG = [pytest.param(seconds, marks=pytest.mark.long) for seconds in (60.0, 600.0)]


@pytest.mark.parametrize("away_s", [6.0, *LONG])
def test_an_external_server_is_stopped(
    away_s: float, tmp_path: Path, runs: Path, sweep: Any
) -> None:
    """It is ended at once, as in a crash, and started again a while later."""
    with running_server() as server:
        url = server.url()
        scene = Scene(tmp_path, runs, sweep, url, trials=3, steps=20, pause_s=0.05, gated=True)
        begin(scene)
        server.stop()
        watch(scene, away_s)
        server.start()
        end(scene)
