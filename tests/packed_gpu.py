"""A GPU that is not there: NVML's answers and trainings' speed and memory follow a written model.

A test asks for the fixture ``packed_gpu`` (import it by name where it is used) and sets what the
card is to be; ``packed_gpu.env`` goes into the environment of ``sweep``, and ``write_training``
puts a training into the study's folder:

    from tests.packed_gpu import PackedGpu, packed_gpu  # noqa: F401

    def test_it(packed_gpu: PackedGpu, ...) -> None:  # noqa: F811
        packed_gpu.set(total=80 * 10**9, progress={1: 1.0, 2: 1.8, 4: 3.0})
        write_training(tmp_path)
        # command: [python, train.py, --epochs, '6', --epoch-s, '0.5', --memory, '2e9', '{params}']

A live training is a file in the card's folder, named by its process, with the bytes that it holds;
one whose process is gone does not count. Training sleeps: it costs next to no CPU time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import mps_stub
from tests.core import nvml_stub

TRAINING = '''\
"""A training on a card of the model: as fast as others leave it, with memory that grows late."""
import argparse
import fcntl
import json
import os
import pathlib
import socket
import sys
import time

from sweep.report import Reporter

TICK_S = 0.05


class Card:
    """The card of CUDA_VISIBLE_DEVICES, and this process's place on it."""

    def __init__(self):
        name = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]
        parts = name.split("-")
        self.number = int(parts[1], 16) if len(parts) > 1 else int(name)
        self.slice = int(parts[2]) if name.startswith("MIG-") else -1
        folder = pathlib.Path(os.environ["NVML_STUB_MODEL"])
        self.model = folder / f"{self.number}.json"
        self.live = folder / str(self.number)
        self.own = self.live / str(os.getpid())

    def others(self):
        """Return what each other training holds that lives on this card, or slice."""
        held = []
        for path in self.live.iterdir():
            if path == self.own or not path.name.isdigit():
                continue
            try:
                os.kill(int(path.name), 0)
                said = json.loads(path.read_text())
            except PermissionError:
                said = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if said["slice"] == self.slice:
                held.append(said["bytes"])
        return held

    def hold(self, count):
        """Hold so many bytes; False where the card has no room for them."""
        with open(self.live / "lock.file", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            model = json.loads(self.model.read_text())
            total = model["total"] // max(1, model["slices"])
            neighbour = model["neighbour"] if self.slice <= 0 else 0
            if neighbour + sum(self.others()) + count > total:
                return False
            new = self.live / f"{os.getpid()}.new"
            new.write_text(json.dumps({"bytes": count, "slice": self.slice}))
            new.replace(self.own)
            return True

    def speed(self):
        """Return how fast this training is now, 1.0 alone."""
        model = json.loads(self.model.read_text())
        points = model["progress"]
        live = 1 + len(self.others())
        levels = sorted(map(int, points))
        low = max(each for each in levels if each <= live)
        high = min([each for each in levels if each > live], default=None)
        together = points[str(low)]
        if high is not None:
            part = (live - low) / (high - low)
            together += part * (points[str(high)] - together)
        gain = model["mps_gain"] if server.link and live > 1 else 1.0
        return gain * together / live


class Server:
    """The stand-in for MPS that serves this training (tests/mps_stub.py), where there is one."""

    def __init__(self):
        self.link = None
        folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(folder + "/control" if folder else "")
        except OSError:
            return  # as CUDA does: without MPS
        link.sendall(b"client %d" % os.getpid())
        if not link.recv(100).strip().isdigit():
            sys.exit("RuntimeError: CUDA error: MPS server is not ready to accept new MPS clients")
        link.setblocking(False)
        self.link = link

    def look(self):
        """End this training where its work is lost."""
        try:
            said = self.link.recv(100) if self.link else b"-"
        except BlockingIOError:
            return
        if said != b"-":
            sys.exit("RuntimeError: CUDA error: " + (
                "unspecified launch failure" if b"fault" in said
                else "the remote procedural call between the MPS server and the MPS client failed"
            ))

    def fault(self):
        """Fault: for all that are served."""
        if self.link is None:
            sys.exit("RuntimeError: CUDA error: an illegal memory access was encountered")
        self.link.sendall(b"fault")
        while True:
            self.look()
            time.sleep(TICK_S)


def hold_or_fail(card, count):
    if not card.hold(count):
        sys.exit(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
            f"{count / 2**30:.2f} GiB. GPU {card.number} has a total capacity of 79.11 GiB"
        )


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--epoch-s", type=float, default=0.5, help="alone")
parser.add_argument("--memory", type=float, default=1e9, help="bytes at its most")
parser.add_argument("--late", type=int, default=1, help="the epoch from which on it needs all")
parser.add_argument("--report-every", type=int, default=1)
parser.add_argument("--x", type=float, default=0.5)
parser.add_argument("--fault-above", type=float, default=9.0, help="x with which it faults")
parser.add_argument("--gate", default="", help="a file for which it waits before it faults")
parser.add_argument("--width", type=float, default=1.0, help="memory is multiplied by it")
flags, _ = parser.parse_known_args()
card, reporter, server = Card(), Reporter(), Server()
memory = int(flags.memory * flags.width)
hold_or_fail(card, memory // 2)
first = 0
if reporter.resume:
    first = int(pathlib.Path(reporter.resume).read_text()) + 1
for epoch in range(first, flags.epochs):
    if epoch >= flags.late:
        hold_or_fail(card, memory)
    left_s, then = flags.epoch_s, time.monotonic()
    while left_s > 0:
        time.sleep(min(TICK_S, left_s))
        now = time.monotonic()
        left_s, then = left_s - (now - then) * card.speed(), now
        server.look()
    if flags.x > flags.fault_above and epoch >= 1:
        while flags.gate and not pathlib.Path(flags.gate).exists():
            server.look()
            time.sleep(TICK_S)
        server.fault()
    if (epoch + 1) % flags.report_every == 0 or epoch + 1 == flags.epochs:
        reporter.log(step=epoch, score=1 - (flags.x - 0.25) ** 2 - 1 / (epoch + 2))
    if reporter.checkpoint_dir:
        path = pathlib.Path(reporter.checkpoint_dir) / "last"
        path.with_suffix(".new").write_text(str(epoch))
        path.with_suffix(".new").replace(path)
    if reporter.should_stop():
        break
card.own.unlink()
'''


class PackedGpu:
    """The model of the cards: a folder that NVML's stand-in and the trainings read."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        folder.mkdir(parents=True)
        self._said: dict[int, dict[str, object]] = {}
        self.env = {
            "NVML_STUB_MODEL": str(folder),
            "LD_LIBRARY_PATH": str(library),
            "PATH": f"{library}:{os.environ['PATH']}",
            "CUDA_VISIBLE_DEVICES": "0",
        }
        self.set()

    def set(
        self,
        card: int = 0,
        *,
        total: int | None = None,
        progress: Mapping[int, float] | None = None,
        neighbour: int | None = None,
        hidden: int | None = None,
        slices: int | None = None,
        lost: bool | None = None,
        busy: float | None = None,
        milliwatts: float | None = None,
        mode: int | None = None,
        mps_gain: float | None = None,
    ) -> None:
        """Change what a card is; what is None stays as it was. It holds at once, for all.

        Args:
            total: Its bytes; with slices each has its part.
            progress: What so many at once get done together, one alone being 1.0; straight lines
                between the points.
            neighbour: Bytes that another process holds: this one.
            hidden: 1: the driver lists no process; 2: it lists the host's numbers; 0: ours.
            slices: MIG: so many, called MIG-00000000-0 and so on.
            lost: It has fallen off the bus.
            busy: Per cent that each live training keeps it busy.
            mode: Its compute mode by NVML's number: 0 default, 2 prohibited, 3 exclusive.
            mps_gain: By how much several are faster that MPS serves.
        """
        said = self._said.setdefault(
            card,
            {
                "total": 80 * 10**9,
                "progress": {"1": 1.0, "2": 1.8, "4": 3.2, "8": 5.0, "16": 5.6},
                "neighbour": 0,
                "neighbour_pid": os.getpid(),
                "hidden": 0,
                "slices": 0,
                "lost": 0,
                "busy": 12.0,
                "milliwatts": 300000.0,
                "mode": 0,
                "mps_gain": 1.2,
            },
        )
        given = {
            "total": total,
            "progress": progress and {str(level): done for level, done in progress.items()},
            "neighbour": neighbour,
            "hidden": hidden,
            "slices": slices,
            "lost": None if lost is None else int(lost),
            "busy": busy,
            "milliwatts": milliwatts,
            "mode": mode,
            "mps_gain": mps_gain,
        }
        said |= {key: value for key, value in given.items() if value is not None}
        (self.folder / str(card)).mkdir(exist_ok=True)
        path = self.folder / f"{card}.json"
        # The stand-in reads numbers behind `"key":`.
        path.with_suffix(".new").write_text(json.dumps(said, separators=(",", ":")))
        path.with_suffix(".new").replace(path)

    def install_mps(self, python: str | None = None) -> Path:
        """Put the stand-in for MPS's control program on PATH; return its folder, for
        ``mps_stub.set_refusals``.

        Args:
            python: What runs it; absent: this one.
        """
        mps_stub.install(self.programs, python)
        self.env["PATH"] = f"{self.programs}:{self.env['PATH']}"
        return self.programs

    def live(self, card: int = 0) -> list[int]:
        """Return the processes that have written themselves to a card and not left it."""
        return sorted(
            int(path.name) for path in (self.folder / str(card)).iterdir() if path.name.isdigit()
        )


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in's folder, for LD_LIBRARY_PATH, with an nvidia-smi that lists one card."""
    pytest.importorskip("pynvml")
    library = nvml_stub.build(tmp_path_factory.mktemp("driver"))
    tool = library / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\ncase $1 in -L) echo 'GPU 0: NVIDIA H200 (UUID: GPU-00000000-stub)' ;;\n"
        "*) echo 'NVIDIA H200, 570.1' ;; esac\n"
    )
    tool.chmod(0o755)
    return library


@pytest.fixture
def packed_gpu(tmp_path: Path, nvml_library: Path) -> PackedGpu:
    """One GPU with 80 GB on which up to 16 trainings gain."""
    return PackedGpu(tmp_path / "gpu", nvml_library)


def write_training(folder: Path, file: str = "train.py") -> Path:
    """Write the training on the modelled card; its command's flags are in TRAINING."""
    path = folder / file
    path.write_text(TRAINING)
    return path
