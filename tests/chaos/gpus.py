"""GPUs that are not there, for a storm: stand-ins for their driver and for MPS, and harm to MPS."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from tests.core import nvml_stub
from tests.packed_gpu import PackedGpu
from tests.processes import find_processes

MPS_KILLS = ("mps fault", "mps fault", "mps process", "mps process")
CPUS_OF_GPU = 16  # trainings sleep: this machine's number of cores shall not bound them


class StormGpus:
    """Modelled cards, and stand-ins for MPS that serve those who train on them.

    Args:
        folder: For the model and the programs; made.
        cards: How many.
        python: Runs the stand-in for MPS; absent: this one.

    Attributes:
        env: What sweep needs in its environment to see them.
    """

    def __init__(self, folder: Path, cards: int, python: str | None = None) -> None:
        model = PackedGpu(folder / "gpu", nvml_stub.build(folder / "driver"))
        for card in range(cards):
            model.set(card)
        self.programs = model.install_mps(python)
        self.env = model.env

    def processes(self) -> list[int]:
        """Return the daemons and servers that live."""
        return sorted(one.pid for one in find_processes(self.programs))

    def harm(self, kind: str, choice: float) -> str:
        """End the daemon or the server of a GPU, or have a client of its fault, for all; return
        what it was, empty where there was none.

        Args:
            choice: From 0 to 1: which one of several.
        """
        living = self.processes()
        if not living:
            return ""
        victim = living[int(choice * len(living))]
        if kind == "mps process":
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                return f"{kind} {victim}"
            return ""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            words = Path(f"/proc/{victim}/environ").read_bytes().decode().split("\0")
            pipe = dict(word.partition("=")[::2] for word in words).get("CUDA_MPS_PIPE_DIRECTORY")
            if pipe is None:  # it has just ended
                return ""
            link.settimeout(10)
            link.connect(f"{pipe}/control")
            link.sendall(b"client %d" % os.getpid())
            server = link.recv(100).decode().strip()
            # One that is alone there would be taken for the one that faulted.
            if server.isdigit() and len(_clients(pipe, server)) > 2:
                link.sendall(b"fault")
                link.recv(100)
                return f"{kind} in {pipe}"
        return ""


def _clients(pipe: str, server: str) -> list[str]:
    """Return the clients of a server of the stand-in's."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(10)
        link.connect(f"{pipe}/control")
        link.sendall(f"command get_client_list {server}".encode())
        return link.recv(4096).decode().split()
