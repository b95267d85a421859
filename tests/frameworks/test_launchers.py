"""What the launchers of frameworks print of a rank that is killed, as they print it now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.training.exit_reason import read_end
from tests.frameworks.scene import need
from tests.training.test_command import make_study

RANKS = """\
import os, signal, time
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""
SPAWN = """\
import os, runpy
import torch.multiprocessing as mp

def work(rank):
    os.environ["RANK"] = str(rank)
    runpy.run_path("ranks.py")

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""
LIGHTNING = """\
import os
from lightning.fabric import Fabric

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
os.environ["RANK"] = str(fabric.global_rank)
exec(open("ranks.py").read())
"""
LAUNCHERS = {
    "torchrun": (
        "torch",
        "python -m torch.distributed.run --standalone --nproc-per-node 2 ranks.py",
    ),
    "fabric": ("lightning", "fabric run --accelerator cpu --devices 2 ranks.py"),
    "lightning": ("lightning", "python lightning_ranks.py"),
    "mp.spawn": ("torch", "python spawn.py"),
    "deepspeed": ("deepspeed", "deepspeed --num_accelerators 2 ranks.py"),
    "accelerate": (
        "accelerate",
        "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
        "--dynamo_backend no ranks.py",
    ),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_killed_rank_is_named(name: str, tmp_path: Path) -> None:
    """And is a fault: the trial goes on, and is not failed by the user's code."""
    package, command = LAUNCHERS[name]
    need(package)
    for file, text in (("ranks.py", RANKS), ("spawn.py", SPAWN), ("lightning_ranks.py", LIGHTNING)):
        (tmp_path / file).write_text(text)
    (tmp_path / "run.sh").write_text(f"exec {command}\n")
    folder = AttemptFolder(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with folder.log.open("w") as log:
        done = subprocess.run(
            ["bash", "run.sh"],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
            timeout=600,
            check=False,
        )
    code = done.returncode
    exit_code, signal = (code, None) if code >= 0 else (None, -code)
    end = read_end(make_study(["bash", "run.sh"]), folder, exit_code, signal, "")
    log_text = folder.log.read_text()
    assert end.outcome == "killed" and end.reason.startswith("rank 1 "), log_text[-3000:]
