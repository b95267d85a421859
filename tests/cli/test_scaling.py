"""``sweep scaling`` with real processes: gloo on two ranks, and a training that is not ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Sweep
from tests.processes import find_processes
from tests.waiting import wait_for

# Any training can take part: it looks for SWEEP_PROFILE and reports a few names.
OTHER = """
import os, sys
from sweep.report import Reporter

assert os.environ["SWEEP_PROFILE"] == "1"
if sys.argv[1] == "13":
    raise ValueError("unlucky")
for step in range(2):
    Reporter().log(step=step, samples_per_s=float(sys.argv[1]) * (1 + step))
"""
STUDY: dict[str, Any] = {
    "name": "scales",
    "objective": {"metric": "val_accuracy", "direction": "maximize"},
    "space": {"lr": {"type": "float", "low": 0.01, "high": 0.02}},
    "trials": 3,
    "sampler": "random",
    "executor": "local",
}


def write(folder: Path, **more: Any) -> Path:
    path = folder / "study.yaml"
    path.write_text(json.dumps({**STUDY, **more}))
    return path


@pytest.mark.long  # trainer/test_ddp has what it reports, the tests below what comes of that
def test_two_gloo_ranks(tmp_path: Path, sweep: Sweep, runs: Path) -> None:
    """The reference trainer on one and two processes: every figure, a table, JSON, a picture."""
    pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra: report)")
    command = "python -m trainer.train --data digits --config {config}"
    path = write(tmp_path, command=command, fixed={"batch_size": 32, "width": 64})
    code, out, err = sweep(
        "scaling", path, "--ranks", "1,2", "--mode", "weak", "--param", "epochs=3", "--json"
    )
    assert code == 0, out + err
    report = json.loads(out)
    one, two = report["rows"]
    assert (one["ranks"], one["batch"], two["ranks"], two["batch"]) == (1, 32, 2, 64)
    for row in (one, two):
        shares = [row[f"share_{n}"] for n in ("compute", "communication", "data", "other")]
        assert sum(shares) == pytest.approx(1) and row["share_compute"] > 0
        assert row["samples_per_s"] > 0 and row["epoch_s"] > 0 and row["memory_gb"] > 0.05
    assert one["share_communication"] == 0 < two["share_communication"]
    assert one["efficiency"] == 1
    assert two["efficiency"] == pytest.approx(two["samples_per_s"] / one["samples_per_s"] / 2)
    assert report["bottleneck"].startswith("2 processes give")
    assert json.loads((runs / "scales/results/scaling-weak.json").read_text()) == report
    assert (runs / "scales/results/scaling-weak.png").read_bytes().startswith(b"\x89PNG")


def test_repeats(tmp_path: Path, sweep: Sweep, runs: Path) -> None:
    """The second of two trainings fails: the rate of failures, and a report of all of it."""
    once = "import pathlib\nmark = pathlib.Path(__file__).parent / 'mark'\n"
    once += "assert not mark.exists(), 'the second'\nmark.touch()\n"
    (tmp_path / "other.py").write_text(OTHER + once)
    path = write(tmp_path, command="python other.py {speed}", fixed={"speed": 50}, code="live")
    code, out, err = sweep("scaling", path, "--ranks", "1", "--repeats", "2")
    assert code == 0, out + err
    assert "1 of 2 failed: exit code 1: AssertionError: the second" in out
    assert "1 of 2 trainings failed (50%)" in out
    page = (runs / "scales/results/scaling-strong.md").read_text()
    assert "    python other.py {speed}" in page and "`speed=50`" in page and " CPUs, " in page
    assert "--repeats 2" in page and "1 of 2 trainings failed (50%)" in page
    (row,) = json.loads((runs / "scales/results/scaling-strong.json").read_text())["rows"]
    assert (row["runs"], row["failures"], row["rates"]) == (2, 1, [100.0])


def test_a_training_of_ones_own(tmp_path: Path, sweep: Sweep) -> None:
    """A rate is enough; a failure is shown with its reason, and one that is silent too."""
    (tmp_path / "other.py").write_text(OTHER)
    path = write(tmp_path, command="python other.py {speed}", fixed={"speed": 50})
    code, out, err = sweep("scaling", path, "--ranks", "1")
    assert code == 0, out + err
    assert "100" in out.splitlines()[2] and "reports no shares" in out
    code, out, err = sweep("scaling", path, "--ranks", "1", "--param", "speed=13")
    assert code == 1 and "1: exit code 1: ValueError: unlucky (log: " in out
    (tmp_path / "other.py").write_text("")
    code, out, err = sweep("scaling", path, "--ranks", "1")
    assert code == 1 and "the training reported no samples_per_s" in out
    assert sweep("scaling", path).code == 2
    assert sweep("scaling", path, "--gpus", "1,x").code == 2


@pytest.mark.real
@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_interrupted_it_shows_what_it_has(tmp_path: Path, runs: Path, how: signal.Signals) -> None:
    """The second training never ends: the first one's row is printed and kept, nothing runs on."""
    script = tmp_path / "slow.py"
    second_hangs = "if os.environ.get('WORLD_SIZE') == '2': import time; time.sleep(600)"
    script.write_text(OTHER + second_hangs)
    command = f"{sys.executable} {script} 7"
    path = write(tmp_path, command=command)
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", "scaling", path, "--ranks", "1,2"],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "SWEEP_RUNS": str(runs)},
    )
    kept = runs / "scales/results/scaling-strong.json"
    second = runs / "scales/scaling/strong-2"
    wait_for(lambda: kept.exists() and any(second.rglob("metrics.jsonl")), "both trainings")
    process.send_signal(how)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, out + err
    assert [row["ranks"] for row in json.loads(kept.read_text())["rows"]] == [1]
    assert out.splitlines()[2].split()[:2] == ["1", "1"]
    assert f"written: {kept}" in err and "Traceback" not in err
    wait_for(lambda: not find_processes(tmp_path), "their end", pause_s=0.2)
