"""Profilers that are asked for by name: py-spy's flame graph, torch's profiler, Nsight Systems.

Each writes into the attempt's folder ``profile``. torch's and Nsight's are started with the
training: its command is put behind them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import subprocess
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.programs import PYTHON, read_program
from sweep.core.study import Study

TORCH = "sweep.integrations.torch_profile"
FOLDER = "{trial_dir}/profile"
NSYS = "nsys"
NSYS_AFTER_S = 10  # what is traced begins after the start, and is short: traces are large
NSYS_S = 20
END_S = 60.0  # for a flame graph to be written
_VALUED = ("-W", "-X", "--check-hash-based-pycs")


def with_torch(study: Study) -> Study:
    """Return the study with its Python script under torch's profiler.

    Raises:
        InputError: Its command is no Python script or module.
    """
    program = read_program(study.command)
    words = list(program.words)
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        at += 2 if words[at] in _VALUED else 1
    if program.kind != PYTHON or at >= len(words) or words[at] in ("-c", "-"):
        raise InputError(
            f"--torch looks into a Python script or module, and the command runs {program.name}.",
            "Leave it out: --py-spy and --nsys take any command.",
        )
    own = [*words[:at], "-m", TORCH, f"{FOLDER}/torch.json", *words[at:]]
    return dataclasses.replace(study, command=tuple(program.wrap(own)))


def with_nsys(study: Study) -> Study:
    """Return the study with its command under Nsight Systems, which must be where training runs."""
    argv = [
        *(NSYS, "profile", "--output", f"{FOLDER}/nsys", "--force-overwrite", "true"),
        *("--trace", "cuda,nvtx,osrt", "--delay", str(NSYS_AFTER_S), "--duration", str(NSYS_S)),
        *("--kill", "none"),
    ]
    return dataclasses.replace(study, command=(*argv, *study.command))


class FlameGraph:
    """py-spy's flame graph of a process and what it has started."""

    def __init__(self, program: str, pid: int, path: Path, duration_s: int) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, exist_ok=True)
        options = ["--output", str(path), "--duration", str(duration_s), "--rate", "50"]
        self._child = subprocess.Popen(
            [program, "record", "--pid", str(pid), "--subprocesses", "--nonblocking", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> str:
        """Have it written; return why there is none, in words, or ""."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGINT)
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        return "" if self.path.is_file() else "py-spy has written no flame graph"
