"""The GPU benchmark runs, here on a CPU with tiny sizes; its numbers mean nothing here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_benchmark_prints_json_and_a_table(tmp_path: Path) -> None:
    """One and two processes, the plain loop, the efficiency, and the same learning."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.trainer_gpu",
            "--device",
            "cpu",
            "--gpus",
            "1,2",
            "--cases",
            "mnist-cnn",
            "--batch",
            "16",
            "--size",
            "320",
            "--epochs",
            "2",
            "--workers",
            "0",
            "--seeds",
            "2",
            "--output",
            str(tmp_path / "r.json"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "r.json").read_text())
    one, two = results["cases"]["mnist-cnn"]["trainer"]
    assert (one["gpus"], two["gpus"]) == (1, 2)
    assert two["efficiency"] == two["samples_per_s"] / (2 * one["samples_per_s"])
    # Each seed is a run of its own, of both: the mean of two, and how sure it is.
    plain = results["cases"]["mnist-cnn"]["plain"]
    assert len(one["accuracies"]) == len(plain["accuracies"]) == 2
    assert one["accuracies"][0] == one["accuracy"]
    assert len(set(plain["accuracies"])) == 2
    lines = done.stdout.splitlines()
    assert json.loads(lines[0]) == results
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| mnist")] == [
        "mnist-cnn",
        "mnist-cnn",
        "mnist-cnn, plain loop",
    ]
