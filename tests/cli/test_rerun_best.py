"""A best that can be trusted: frozen code, and ``sweep rerun-best``'s verdicts, on real studies."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import collected, counts, gated, steps_of, wait_for
from tests.conftest import Ran, Sweep, run_sweep, stop_runs
from tests.postgres_fixture import Server
from tests.processes import wait_until_gone
from tests.provenance.test_capture import git
from tests.toys import TRAINING, write_toy

# Noise from the trial's seed: the same seed must give the same numbers, to the last bit.
SEEDED = TRAINING.replace(
    "reporter = Reporter()",
    """\
reporter = Reporter()
import random
random.seed(int(os.environ["SWEEP_SEED"]))
""",
).replace("step + 2)\n", "step + 2) + random.gauss(0, 0.1)\n")
UNSEEDED = SEEDED.replace('random.seed(int(os.environ["SWEEP_SEED"]))', "random.seed()")


def verdicts(ran: Ran) -> Any:
    assert ran.code in (0, 3), ran
    return json.loads(ran.out)


@pytest.mark.parametrize("trials", [2, pytest.param(20, marks=pytest.mark.long)])
def test_all_reproduced(tmp_path: Path, sweep: Sweep, trials: int) -> None:
    """Trainings on the CPU with seeded noise: each gives the same number again, to the last bit."""
    write_toy(tmp_path, trials=trials, training=SEEDED)
    assert sweep("launch", "study.yaml", "--wait").code == 0
    found = verdicts(sweep("rerun-best", "--top", trials, "--wait", "--json", timeout_s=600.0))
    assert [one["trial"] for one in found] == [row["trial"] for row in collected(sweep)]
    assert len({one["original"] for one in found}) == trials
    for one in found:
        assert (one["verdict"], one["relative_difference"]) == ("reproduced", 0.0)
        assert (one["axes"], one["differences"], one["apart_from"]) == ([], [], None)
        assert one["steps"] == [3, 3]
        assert Path(one["picture"]).read_bytes().startswith(b"\x89PNG")
    assert len(collected(sweep)) == trials  # a re-run is no trial


def test_planted_nondeterminism(tmp_path: Path, sweep: Sweep) -> None:
    """Nothing that is recorded differs: the noise floor and likely causes are shown; code 3."""
    write_toy(tmp_path, trials=1, training=UNSEEDED)
    assert sweep("launch", "study.yaml", "--wait").code == 0
    ran = sweep(
        "rerun-best", "--repeats", "3", "--seeds", "2", "--wait", "--tolerance", "0.0001%", "--json"
    )
    assert ran.code == 3, ran
    one = json.loads(ran.out)
    assert (one["verdict"], one["axes"], one["differences"]) == ("differs", [], [])
    assert one["noise"]["runs"] == 3
    assert one["noise"]["relative"] > 1e-6
    assert one["noise"]["low"] <= one["rerun"] <= one["noise"]["high"]
    assert len(one["other_seeds"]) == 2
    assert one["apart_from"] == 0
    assert any("without a seed" in cause for cause in one["causes"])
    assert any("{seed}" in cause for cause in one["causes"])
    said = sweep("rerun-best", "--report", "--tolerance", "0.0001%")
    assert said.code == 3
    assert "noise floor" in said.out and "3 runs with the same seed" in said.out


class Scene:
    """A study of one trial with live code, a venv, data and a GPU: each can be changed alone.

    Its result hangs on a file that is none of these, so that a re-run always differs.
    """

    def __init__(self, folder: Path, call: Sweep) -> None:
        self.folder, self.call = folder, call
        self.repository, self.hidden = folder / "repo", folder / "hidden"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True
        )
        self.site = next((folder / "env/lib").glob("python3*/site-packages"))
        (self.site / "torchlike-1.0.dist-info").mkdir()
        (folder / "data").mkdir()
        (folder / "data/x").write_text("1")
        (folder / "data.dvc").write_text("outs:\n- md5: 1111.dir\n  path: data\n")
        (folder / "bin").mkdir()
        self.set_gpu("A100")
        self.hidden.write_text("0.0")
        shift = f'float(open("{self.hidden}").read())'
        training = TRAINING.replace("step + 2)\n", f"step + 2) + {shift}\n")
        write_toy(
            self.repository,
            trials=1,
            training=training,
            code="live",
            data=f"[{folder}/data]",
            environment=f"{{runtime: venv, image: {folder}/env}}",
        )
        git(self.repository, "init", "-q")
        git(self.repository, "add", ".")
        git(self.repository, "commit", "-q", "-m", "first")
        done = self.sweep("launch", "study.yaml", "--wait")
        assert done.code == 0, done
        self.hidden.write_text("0.5")

    def sweep(self, *words: str) -> Ran:
        path = f"{self.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return self.call(*words, cwd=self.repository, env={**self.env, "PATH": path})

    env: dict[str, str] = {}

    def set_gpu(self, name: str) -> None:
        tool = self.folder / "bin/nvidia-smi"
        tool.write_text(f"#!/bin/sh\necho 'NVIDIA {name}, 570.1'\n")
        tool.chmod(0o755)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("planted")
    postgres_server.sql("CREATE DATABASE planted")
    Scene.env = {"SWEEP_STORAGE": postgres_server.url("planted")}
    yield Scene(folder, partial(run_sweep, runs=folder / "runs"))
    stop_runs(folder / "runs")
    postgres_server.sql("DROP DATABASE planted WITH (FORCE)")


def test_nothing_planted(scene: Scene) -> None:
    """What no record holds is no explanation."""
    ran = scene.sweep("rerun-best", "--wait", "--json")
    one = json.loads(ran.out)
    assert (ran.code, one["verdict"], one["axes"]) == (3, "differs", [])


def test_packages_as_requirements(scene: Scene) -> None:
    """Those that the trial ran with, whatever is installed since."""
    ran = scene.sweep("rerun-best", "--lock", "best.txt")
    assert ran.code == 0, ran
    text = (scene.repository / "best.txt").read_text()
    assert text.splitlines()[0] == "# Packages of trial 0 of toy"
    assert "torchlike==1.0" in text.splitlines()
    refused = scene.sweep("rerun-best", "--lock", "best.txt", "--wait")
    assert (refused.code, "--lock starts and reports nothing" in refused.err) == (2, True)
    (scene.repository / "best.txt").unlink()


@pytest.mark.parametrize("planted", ["code", "package", "data", "GPU", "variable"])
def test_planted_changes_are_named(scene: Scene, planted: str) -> None:
    """One thing is changed before the re-run: the verdict names its axis, and nothing else."""
    script, package = scene.repository / "train.py", scene.site / "torchlike-1.0.dist-info"
    before = script.read_text()
    note = scene.folder / "data.dvc"
    tracked = note.read_text()
    words = ["rerun-best", "--wait", "--json"]
    if planted == "code":
        script.write_text(before + "# another line\n")
        axis, said = "code", "train.py has changed"
    elif planted == "package":
        package.rename(scene.site / "torchlike-1.1.dist-info")
        axis, said = "environment", "torchlike was 1.0 and is 1.1"
    elif planted == "data":
        (scene.folder / "data/x").write_text("2")
        note.write_text(tracked.replace("1111", "2222"))
        files = "1 files of 1 bytes, now 1 of 1"
        version = "data.dvc was 1111.dir and is 2222.dir"
        axis = "data"
        said = f"{scene.folder}/data has other content ({files}; {version})"
    elif planted == "GPU":
        scene.set_gpu("H100")
        axis, said = "environment", "the list of GPUs was NVIDIA A100 and is NVIDIA H100"
    else:
        Scene.env["OMP_NUM_THREADS"] = "3"
        axis, said = "environment", "the variable OMP_NUM_THREADS is 3 and was not set"
    try:
        ran = scene.sweep(*words)
    finally:
        script.write_text(before)
        (scene.folder / "data/x").write_text("1")
        note.write_text(tracked)
        scene.set_gpu("A100")
        Scene.env.pop("OMP_NUM_THREADS", None)
        if not package.exists():
            (scene.site / "torchlike-1.1.dist-info").rename(package)
    one = json.loads(ran.out)
    assert (ran.code, one["verdict"], one["axes"]) == (0, "explained", [axis]), one
    assert any(said in sentence for sentence in one["differences"]), one["differences"]
    others = [s for s in one["differences"] if said not in s]
    assert others == (["code: there are uncommitted changes now."] if planted == "code" else [])
    assert "canary" not in ran.out


def test_missing_ones_are_refused_by_name(scene: Scene) -> None:
    """Commit, image and data that are gone are named, and nothing is started; unless --anyway."""
    for name, path in (
        ("code: the commit", scene.repository / ".git"),
        ("image:", scene.folder / "env"),
        ("data:", scene.folder / "data"),
    ):
        away = path.with_name("away")
        path.rename(away)
        if path.name == ".git":
            git(scene.repository, "init", "-q")
        ran = scene.sweep("rerun-best", "--wait")
        if path.name != "env":  # without it nothing starts
            anyway = scene.sweep("rerun-best", "--wait", "--anyway", "--json")
            one = json.loads(anyway.out)
            axis = name.partition(":")[0]
            assert (one["verdict"], one["axes"]) == ("explained", [axis]), one
            assert len(one["differences"]) == 1, one
            said = f"data: {path} is missing now." if axis == "data" else "no commit is known now"
            assert said in one["differences"][0]
        if path.name == ".git":
            shutil.rmtree(path)
        away.rename(path)
        assert ran.code == 2, ran
        assert name in ran.err and "gone" in ran.err and "--anyway" in ran.err
        gone = [line for line in ran.err.splitlines() if line.startswith("  ")]
        assert len(gone) == 1, ran.err


def test_editing_after_launch_changes_no_trial(tmp_path: Path, runs: Path, sweep: Sweep) -> None:
    """The script is edited while trials wait: all of them run what was launched."""
    write_toy(tmp_path, trials=3, parallel=1, command=gated(tmp_path))
    assert sweep("launch", "study.yaml").code == 0
    (tmp_path / "train.py").write_text(TRAINING.replace("score = 1 -", "score = 100 -"))
    wait_for(lambda: steps_of(runs, "toy", 0) > 0, "the first trial")
    (tmp_path / "gate").touch()
    wait_for(lambda: len(collected(sweep)) == 3, "three trials")
    assert all(row["value"] < 1.0 for row in collected(sweep))


def test_launching_changed_code(tmp_path: Path, runs: Path, sweep: Sweep) -> None:
    """It is said, and further trials run it; those before are run again with their own."""
    write_toy(tmp_path, trials=1)
    assert sweep("launch", "study.yaml", "--wait").code == 0
    (tmp_path / "train.py").write_text(TRAINING.replace("score = 1 -", "score = 100 -"))
    more = sweep("launch", "study.yaml", "--set", "trials=2", "--wait")
    assert "changed: code: train.py has changed. Trials that start from now on run" in more.out
    (tmp_path / "train.py").write_text(TRAINING)
    assert "code:" not in sweep("launch", "study.yaml", "--set", "trials=2", "--wait").err
    assert len(list((runs / "toy/code").glob("*.sha256"))) == 2
    values = {row["trial"]: row["value"] for row in collected(sweep)}
    assert values[0] < 1.0 < 99.0 < values[1]
    for one in verdicts(sweep("rerun-best", "--top", "2", "--wait", "--json")):
        assert (one["verdict"], one["relative_difference"]) == ("reproduced", 0.0)
    shutil.rmtree(runs / "toy/code")
    refused = sweep("rerun-best", "--trial", "0", "--wait")
    assert refused.code == 2
    assert "code: the snapshot that trial 0 ran is gone" in refused.err, refused


def test_rerun_is_reported_later(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """`rerun-best` returns at once; the next call gives the verdict; no trial is added."""
    assert sweep("launch", write_toy(tmp_path), "--wait").code == 0
    first = sweep("rerun-best")
    assert first.code == 0
    assert "it runs; `sweep rerun-best` reports once it has ended" in first.out
    wait_for(lambda: (runs / "toy/reruns/1/exit.json").exists(), "the re-run to end")
    assert wait_until_gone(runs) == []
    second = sweep("rerun-best", "--json")
    assert second.code == 0
    got = json.loads(second.out)
    (best,) = collected(sweep, "--top", "1")
    assert (got["verdict"], got["relative_difference"]) == ("reproduced", 0.0)
    assert got["original"] == got["rerun"] == best["value"]
    assert got["differences"] == []
    assert counts(sweep) == {"complete": 4}


def test_rerun_that_differs_exits_with_3(sweep: Sweep, tmp_path: Path) -> None:
    """A training that gives another result each time is told so, with exit code 3."""
    training = TRAINING.replace("score = 1", "score = time.time() % 1000 + 1")
    assert sweep("launch", write_toy(tmp_path, training=training, trials=2), "--wait").code == 0
    ran = sweep("rerun-best", "--wait", "--tolerance", "0")
    assert ran.code == 3
    assert re.search(r"verdict +differs", ran.out)
