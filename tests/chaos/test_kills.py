"""SIGKILL of anything at any time: the next launch ends with exactly N trials, nothing lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sweep.storage.embedded.server import running
from tests.chaos.scene import LONG_ROUNDS, ROUNDS, SEED, Scene, choose_time, kill, play
from tests.conftest import stop_runs, sweep_environment

SHORT = range(ROUNDS)
LONG = range(ROUNDS, LONG_ROUNDS)
RETRY = "retry: {max_attempts: 10}\n"
often = pytest.mark.parametrize(
    "rounds",
    [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)],
)


@often
@pytest.mark.parametrize("kind", ["worker", "training", "runner"])
def test_kill(
    kind: str, rounds: Iterable[int], tmp_path: Path, runs: Path, sweep: Any, fresh_url: str
) -> None:
    """A worker, a training or the runner is killed at a random time of its study."""

    def act(round_: int) -> None:
        scene = Scene(
            tmp_path, runs, sweep, fresh_url, f"study{round_}", trials=3, steps=5, more=RETRY
        )
        scene.write().launch()
        find = {"worker": scene.workers, "training": scene.trainings, "runner": scene.runners}
        time.sleep(choose_time(kind, round_, 3.0))
        victims = find[kind]()
        if victims:
            kill(random.Random(f"{SEED}:{round_}").choice(victims))
        else:
            print("nothing of that kind ran at that time")
        scene.launch()
        scene.wait()
        scene.check()

    play(rounds, act)


@often
@pytest.mark.parametrize("options", [(), ("--wait",)], ids=["launch", "launch --wait"])
def test_kill_launch(
    options: tuple[str, ...], rounds: Iterable[int], tmp_path: Path, sweep: Any
) -> None:
    """Launch itself is killed at a random time, the making of the database included."""

    def act(round_: int) -> None:
        runs = tmp_path / f"runs{round_}"
        scene = Scene(tmp_path, runs, sweep, None, f"study{round_}", trials=3, steps=4, more=RETRY)
        scene.write()
        launching = subprocess.Popen(
            [sys.executable, "-m", "sweep", "launch", scene.file.name, *options],
            cwd=tmp_path,
            env=sweep_environment(runs),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(choose_time("launch" + "".join(options), round_, 6.0 if options else 4.0))
        os.kill(launching.pid, signal.SIGKILL)
        launching.wait()
        try:
            scene.launch()
            scene.wait()
            scene.check()
        finally:
            stop_runs(runs)

    play(rounds, act)


@often
def test_kill_postmaster(rounds: Iterable[int], tmp_path: Path, runs: Path, sweep: Any) -> None:
    """The embedded server is killed at random times, each in a study of its own."""

    def act(round_: int) -> None:
        scene = Scene(tmp_path, runs, sweep, None, f"study{round_}", trials=3, steps=5, more=RETRY)
        scene.write().launch()
        time.sleep(choose_time("postmaster", round_, 3.0))
        server = running(runs / ".postgres")
        if server is not None:
            kill(server.pid)
        scene.launch()
        scene.wait()
        scene.check()

    for round_ in rounds:  # one after the other: they share the server
        act(round_)
