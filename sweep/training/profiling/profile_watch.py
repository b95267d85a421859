"""Looks at a training while it runs: its processes, its GPUs, its stacks; and what they say.

Everything is seen from outside: ``/proc`` for the processes (CPU, memory, what is read and
written, waits for a disk), NVML for GPUs, and py-spy, where it is installed, for whether the main
threads load, exchange or work. What a training reports itself (``share_data``,
``share_communication``, ``share_compute``) counts before these.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from sweep.core.files import write_atomic
from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.core.system import process_tree
from sweep.core.system.gpus import find_gpus
from sweep.core.system.nvml import Cards
from sweep.core.system.process_tree import ProcessLook, TreeUse
from sweep.core.system.processes import read_environment
from sweep.core.trial import Report
from sweep.training.profiling.judgement import LEAST_LOOKS, judge
from sweep.training.profiling.looks import (
    GpuLook,
    TrainingLook,
    course,
    mean,
    symptoms_of,
    waits_for_files,
)
from sweep.training.profiling.profilers import FlameGraph
from sweep.training.profiling.spy import Spy
from sweep.training.profiling.stacks import COMMUNICATION, DATA
from sweep.training.profiling.symptoms import Symptoms
from sweep.training.supervisor import Observer

VARIABLE = "SWEEP_PROFILE"  # a training that sees it may report where its time goes
PY_SPY = "py-spy"
RANK = "RANK"  # each rank of a training has it in its environment, whoever started it
GPU_EVERY_S = 1.0
FLAMES_S = 3600  # of a flame graph, at most
KEEP_EVERY_S = 30.0  # what is known of a killed training is known up to here
MOST_LOOKS = 2400  # from then on the pauses grow with the training
SPY_LOOKS = 100  # the same of py-spy, whose looks take CPU
OWN_SHARES = ("share_data", "share_communication", "share_compute")


class ProfileWatch(Observer):
    """Looks at one training.

    Args:
        root: Its first process.
        folder: Where the profile is kept.
        environ: What the training inherits; it says which GPUs are its own.
        py_spy: The program; None where it is not installed.
        spy_pause_s: Between two looks of py-spy, at least.
        flame_graph: Where py-spy's flame graph is to be written.
    """

    def __init__(
        self,
        root: int,
        folder: AttemptFolder,
        study: Study,
        environ: Mapping[str, str],
        py_spy: str | None,
        spy_pause_s: float = 1.0,
        flame_graph: Path | None = None,
    ) -> None:
        self.folder = folder
        self.study = study
        self._root = root
        self._began = time.monotonic()
        self._next = self._next_gpu = self._began
        self._next_keep = self._began + KEEP_EVERY_S
        self._counters = TreeUse()
        self._before: Mapping[int, ProcessLook] = {}
        self._main_cpu_s = self._loader_cpu_s = self._delay_s = 0.0
        self._has_rank: dict[tuple[int, int], bool] = {}
        self._looks: list[TrainingLook] = []
        self._trained_from: int | None = None  # the look at which it reported first
        self._own: dict[str, list[float]] = {}
        names = find_gpus(environ) if study.resources.gpu_count else []
        self._cards = Cards.open(names, environ) if names else None
        self._gpus = len(names) if names else study.resources.gpu_count
        self._py_spy = py_spy
        self._flame_graph = flame_graph
        self._flames: FlameGraph | None = None
        self._troubles: list[str] = []
        self._is_blind = False
        self._spy = Spy(py_spy, study.world, spy_pause_s) if py_spy else None

    def see(self, reports: Sequence[Report]) -> None:
        """Take note of what training has reported."""
        if reports and self._trained_from is None:
            self._trained_from = len(self._looks)
            if self._spy is not None:
                self._spy.forget()
        for report in reports:
            for name in OWN_SHARES:
                # Something else of that name, and what is no number, is no share.
                if 0.0 <= report.metrics.get(name, math.nan) <= 1.0:
                    self._own.setdefault(name, []).append(report.metrics[name])

    def look(self) -> None:
        """Look, where it is time to; a fault of a look is noted, and never the training's.

        Raises:
            OSError: There is no room for the profile so far.
        """
        if self._is_blind:
            return
        try:
            self._look_now()
        except OSError:
            raise
        except Exception as error:
            self._is_blind = True
            self._troubles.append(f"looking ended early ({type(error).__name__}: {error})")

    def _look_now(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        pause_s = (now - self._began) / MOST_LOOKS
        self._next = now + pause_s
        found = process_tree.look(self._root)
        if not found:
            return
        ranks = self._find_ranks(found)
        self._looks.append(self._look(now, found, ranks))
        self._before = found
        if self._spy is not None:
            self._spy.slow_down((now - self._began) / SPY_LOOKS)
            self._spy.step(ranks)
        if self._flame_graph is not None and self._py_spy is not None and ranks:
            path, self._flame_graph = self._flame_graph, None
            try:
                self._flames = FlameGraph(self._py_spy, ranks[0], path, FLAMES_S)
            except OSError as error:
                self._troubles.append(f"no flame graph: {error.strerror}")
        if now >= self._next_keep:
            self._next_keep = now + KEEP_EVERY_S
            self.keep()

    def end(self) -> None:
        """Look no more, and write the profile into the attempt's folder.

        Raises:
            OSError: There is no room for it.
        """
        if self._spy is not None:
            self._spy.close()
        if self._flames is not None:
            trouble = self._flames.end()
            self._troubles += [trouble] if trouble else []
            self._flames = None
        self.keep()

    def keep(self) -> None:
        """Write the profile so far; raises as ``end`` does."""
        write_atomic(self.folder.profile, json.dumps(self.data()) + "\n")

    def data(self) -> dict[str, Any]:
        """Return ``host``, ``seen``, ``judgement``, ``notes`` and ``over_time`` so far."""
        seen = self.symptoms()
        return {
            "host": socket.gethostname(),
            "seen": seen.to_data(),
            "judgement": judge(seen).to_data(),
            "notes": self.notes(),
            "over_time": course(self._looks),
        }

    def notes(self) -> list[str]:
        """Return, in sentences, what could not be seen."""
        found = list(self._troubles)
        if self._spy is None:
            found.append("py-spy is not installed: what it waits for was not seen")
        elif self._spy.trouble:
            found.append(self._spy.trouble)
        if self._gpus and self._cards is None:
            found.append("NVML does not answer for its GPUs (nvidia-ml-py: 'sweep-hpo[energy]')")
        if self.study.resources.nodes > 1:
            found.append(f"only {socket.gethostname()} was looked at, of several nodes")
        if self._trained_from is None:
            found.append("it reported nothing: its start may be among what was seen")
        if not self._looks:
            found.append("no process of it could be seen")
        return found

    def symptoms(self) -> Symptoms:
        """Return what was seen so far."""
        looks = self._counted()
        study, needs = self.study, self.study.resources
        memory = None if needs.memory_mb is None else needs.memory_mb * 2**20
        given = Symptoms(
            ranks=study.world,
            gpus=self._gpus,
            cores=float(needs.cpus or len(os.sched_getaffinity(0))),
            memory_bytes=memory,
        )
        own = {f"own_{n.removeprefix('share_')}": median(v) for n, v in self._own.items()}
        spied: dict[str, Any] = {}
        if self._spy is not None and self._spy.looks:
            spied = {
                "stack_looks": self._spy.looks,
                "stack_data": self._spy.share(DATA),
                "stack_communication": self._spy.share(COMMUNICATION),
            }
        seen = symptoms_of(looks)
        return Symptoms(**{**given.to_data(), **seen, **spied, **own})

    def _counted(self) -> Sequence[TrainingLook]:
        """Return the looks that count: since it reported first, or else of its second half."""
        looks, first = self._looks, self._trained_from
        if first is not None and len(looks) - first >= LEAST_LOOKS:
            return looks[first:]
        return looks[len(looks) // 2 :] if len(looks) >= 2 * LEAST_LOOKS else looks

    def _find_ranks(self, found: Mapping[int, ProcessLook]) -> list[int]:
        """Return the processes that train: ranks, or else the uppermost that run Python, or else
        the one at which a chain of single children ends."""
        pythons = [one for one in found.values() if one.is_python]
        marked = [one for one in pythons if self._is_marked(one)]
        inner = {one.pid for one in marked} or {one.pid for one in pythons}
        top = [pid for pid in inner if not self._above(found, pid) & inner]
        if top:
            return sorted(top)
        at = self._root
        while len(below := [one.pid for one in found.values() if one.parent == at]) == 1:
            at = below[0]
        return [at] if at in found else []

    def _is_marked(self, one: ProcessLook) -> bool:
        key = (one.pid, one.start)
        if key not in self._has_rank:
            self._has_rank[key] = RANK in read_environment(one.pid)
        return self._has_rank[key]

    @staticmethod
    def _above(found: Mapping[int, ProcessLook], pid: int) -> set[int]:
        above: set[int] = set()
        while pid in found and (pid := found[pid].parent) in found:
            above.add(pid)
        return above

    def _look(
        self, now: float, found: Mapping[int, ProcessLook], ranks: Sequence[int]
    ) -> TrainingLook:
        self._counters.add(found)
        loaders = {
            rank: [one for pid, one in found.items() if rank in self._above(found, pid)]
            for rank in ranks
        }
        for pid, one in found.items():
            then = self._before.get(pid)
            if then is None or then.start != one.start:
                continue
            if pid in ranks:
                self._main_cpu_s += one.thread_cpu_s - then.thread_cpu_s
                self._delay_s += (one.delay_s or 0.0) - (then.delay_s or 0.0)
            elif any(one in below for below in loaders.values()):
                self._loader_cpu_s += one.cpu_s - then.cpu_s
        count = max(1, len(ranks))
        return TrainingLook(
            at_s=now - self._began,
            ranks=len(ranks),
            waits=sum(found[pid].state not in process_tree.RUNS for pid in ranks) / count,
            files=sum(waits_for_files(found[pid], loaders[pid]) for pid in ranks) / count,
            cpu_s=self._counters.cpu_s,
            main_cpu_s=self._main_cpu_s,
            loader_cpu_s=self._loader_cpu_s,
            delay_s=self._delay_s,
            loaders=sum(map(len, loaders.values())),
            read_bytes=self._counters.read_bytes,
            written_bytes=self._counters.written_bytes,
            faults=self._counters.faults,
            rss_bytes=sum(one.rss_bytes for one in found.values()),
            gpu=self._look_at_gpus(now),
        )

    def _look_at_gpus(self, now: float) -> GpuLook | None:
        if self._cards is None or now < self._next_gpu:
            return None
        self._next_gpu = now + GPU_EVERY_S
        numbers = range(len(self._cards))
        samples = [self._cards.sample(number) for number in numbers]
        held = [
            sample.used_bytes / sample.total_bytes
            for sample in samples
            if sample.used_bytes is not None and sample.total_bytes
        ]
        powers = [power for number in numbers if (power := self._cards.power(number)) is not None]
        return GpuLook(
            mean([s.busy for s in samples if s.busy is not None]),
            mean([s.traffic for s in samples if s.traffic is not None]),
            max(held, default=None),
            mean(powers),
        )


def find_py_spy(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the py-spy that lies on PATH or beside this Python, or None."""
    beside = os.path.dirname(sys.executable)
    return shutil.which(PY_SPY, path=os.pathsep.join([beside, environ.get("PATH", os.defpath)]))
