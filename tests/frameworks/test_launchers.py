"""What the launchers of frameworks print of a rank that is killed, as they print it now."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep import load
from sweep.core.paths import AttemptFolder
from sweep.training.exit_reason import read_end
from tests.conftest import Sweep
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


PRINTS_BY_ITSELF = {
    "mp.spawn": (
        "torch",
        "import torch.multiprocessing as mp\n"
        "def work(rank):\n"
        "    for epoch in range(4):\n"
        "        print(f'epoch {epoch} acc={epoch + 10 * rank}', flush=True)\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, nprocs=2)\n",
    ),
    "Lightning": (
        "lightning",
        "from lightning.fabric import Fabric\n"
        "fabric = Fabric(accelerator='cpu', devices=2, strategy='ddp')\n"
        "fabric.launch()\n"
        "for epoch in range(4):\n"
        "    print(f'epoch {epoch} acc={epoch + 10 * fabric.global_rank}', flush=True)\n"
        "    fabric.barrier()\n",
    ),
}


@pytest.mark.parametrize("name", PRINTS_BY_ITSELF)
def test_ranks_whose_lines_nothing_tells_apart_are_noted(
    sweep: Sweep, tmp_path: Path, runs: Path, name: str
) -> None:
    """Each line is a step, and status says that they came twice."""
    package, script = PRINTS_BY_ITSELF[name]
    need(package)
    (tmp_path / "prints.py").write_text(script)
    (tmp_path / "study.yaml").write_text(
        "name: printed\ncommand: python prints.py\nresources: {cpus: 2}\n"
        "objective: {metric: acc, direction: maximize, from: {stdout: 'acc=([0-9]+)'}}\n"
        "space: {}\ntrials: 1\n"
    )
    ran = sweep("launch", "study.yaml", "--wait", "--executor", "local", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    shown = sweep("status", "printed")
    assert "lines came 2 times" in shown.out + shown.err, shown.out


PRINTS = """\
import os
names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
rank = next(os.environ[name] for name in names if name in os.environ)
for epoch in range(3):
    print(f"epoch {epoch} acc={epoch + 10 * int(rank)}", flush=True)
"""
PRINTING = {
    "torchrun": ("torch", "python -m torch.distributed.run --nproc-per-node 2 prints.py"),
    "torchrun in a script": ("torch", "bash run.sh"),
    "accelerate": (
        "accelerate",
        "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
        "--dynamo_backend no --main_process_port 0 --tee 3 prints.py",
    ),
    "Open MPI": (
        "mpirun.openmpi",
        "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 python prints.py",
    ),
    "MPICH": ("mpiexec.hydra", "mpiexec.hydra -l -n 2 python prints.py"),
}


@pytest.mark.parametrize("name", PRINTING)
def test_a_value_that_each_rank_prints_is_stored_once(
    sweep: Sweep, tmp_path: Path, runs: Path, name: str
) -> None:
    """The first rank's, whatever launcher the command itself starts."""
    package, command = PRINTING[name]
    need(package)
    (tmp_path / "prints.py").write_text(PRINTS)
    (tmp_path / "run.sh").write_text(f"exec {PRINTING['torchrun'][1]}\n")
    (tmp_path / "study.yaml").write_text(
        f"name: printed\ncommand: {command}\nresources: {{cpus: 2}}\n"
        "objective: {metric: acc, direction: maximize, from: {stdout: 'acc=([0-9]+)'}}\n"
        "space: {}\ntrials: 1\n"
        + ("ddp: {ranks_per_node: 2}\n" if command.startswith("bash") else "")
    )
    ran = sweep("launch", "study.yaml", "--wait", "--executor", "local", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    with contextlib.closing(load("printed", runs)) as study:
        rows = study.metrics("acc")[["step", "value"]].itertuples(index=False)
        got = [tuple(row) for row in rows]
    log = (runs / "printed/trials/00000/attempts/1/log.txt").read_text()
    assert got == [(0, 0.0), (1, 1.0), (2, 2.0)], log
