"""A re-run needs nothing of the trial that it repeats but what the database holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.chaos.scene import Scene


def test_without_any_checkpoint(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> None:
    """All checkpoints removed: reproduced, as many steps; the study still has its N trials."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=3, steps=4, pause_s=0.01)
    scene.write().launch()
    scene.wait()
    before = scene.check()
    folders = list(scene.root.glob("trials/*/attempts/*/checkpoints"))
    assert any(list(folder.iterdir()) for folder in folders)
    for folder in folders:
        shutil.rmtree(folder)
    done = sweep("rerun-best", scene.name, "--wait", "--json", env=scene.env)
    assert done.code == 0, done
    verdict = json.loads(done.out)
    assert (verdict["verdict"], verdict["relative_difference"]) == ("reproduced", 0.0)
    assert verdict["steps"] == [scene.steps, scene.steps]
    scene.wait_for(lambda: not scene.processes())
    assert scene.check() == before
