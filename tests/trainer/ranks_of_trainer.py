"""Starts the trainer as several ranks on this machine, as torchrun or srun would."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import fork_server
from tests.fork_server import Forked, ForkServer
from tests.ports import quiet_port
from tests.waiting import PATIENCE_S

# What a rank runs: the command, with a plant in front (code that patches something in one rank).
_PROGRAM = "import sys\nfrom trainer import train\n{plant}\nsys.exit(train.main(sys.argv[1:]))\n"
QUICK = (
    "--data",
    "digits",
    "--epochs",
    "4",
    "--width",
    "16",
    "--train-fraction",
    "0.3",
    "--lr",
    "0.1",
    "--device",
    "cpu",
)


def torch_server(environ: Mapping[str, str]) -> ForkServer:
    """Return what forks trainings: importing torch takes two seconds of computing, done once."""
    return fork_server("torch", environ, ["trainer.train", "trainer.loop", "trainer.run"])


def start(
    world: int,
    folder: Path,
    *argv: str,
    plant: str = "",
    port: int | None = None,
    slurm: bool = False,
    only: tuple[int, ...] | None = None,
    **environ: str,
) -> list[Forked]:
    """Start the ranks of one run; their journal and checkpoints lie in the folder.

    Args:
        world: How many ranks there are.
        folder: Of the run; made if missing.
        argv: The trainer's flags.
        plant: Python code, run in each rank before the trainer.
        port: Where rank 0 listens; a free one where not given.
        slurm: Say by srun's variables, not torchrun's, which rank is which.
        only: Start only these ranks.
        environ: More variables, the same for all; ``{rank}`` in a value is the rank.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = (
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")
        if slurm
        else ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    )
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SWEEP_", "SLURM_"))
    }
    server = torch_server(clean)
    found = port or quiet_port()
    processes = []
    for rank in only or range(world):
        place = dict(zip(names, (str(rank), str(rank), str(world)), strict=True))
        more = {name: value.format(rank=rank) for name, value in environ.items()}
        processes.append(
            server.start(
                argv,
                code=_PROGRAM.format(plant=plant),
                cwd=os.getcwd(),
                environ={
                    **clean,
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(found),
                    "SWEEP_METRICS": str(folder / "metrics.jsonl"),
                    "SWEEP_CONTROL": str(folder / "control.json"),
                    "SWEEP_CHECKPOINT_DIR": str(folder / "checkpoints"),
                    **({"SLURM_STEP_ID": "0"} if slurm else {}),
                    **place,
                    **more,
                },
            )
        )
    return processes


def finish(processes: list[Forked]) -> list[tuple[int | None, str, str]]:
    """Return (exit code, output, errors) of each rank, in their order."""
    found = []
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_S)
        found.append((process.returncode, out, err))
    return found
