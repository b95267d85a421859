"""What a task of Slurm's knows of itself by its environment, and what it asks from within."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core.errors import CouldNotAsk, SchedulerError, SweepError
from sweep.core.hostlist import expand_nodes
from sweep.schedulers.slurm.ask import QUICK_TIMEOUT_S, QUICK_TRIES
from sweep.schedulers.slurm.small_jobs import SmallJobs
from sweep.schedulers.slurm.text.answers import judged, strip_words
from sweep.schedulers.slurm.text.notation import read_nodes
from sweep.schedulers.slurm.text.queue import parse_time_left, time_left_argv
from sweep.schedulers.slurm.text.steps import (
    held_argv,
    names_memory,
    parse_held,
    seat_argv,
    step_argv,
    step_environment,
)

SIBLINGS = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
COMMAND_TIMEOUT_S = 60.0


class OwnTask(SmallJobs):
    """The questions of a task; what is asked of Slurm as in ``Asker``."""

    @classmethod
    def task_of(cls, environ: Mapping[str, str]) -> tuple[str | None, int | None]:
        """Return job id and index of the task in whose environment this process runs."""
        job = environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID")
        if job is None:
            return super().task_of(environ)
        index = environ.get("SLURM_ARRAY_TASK_ID")
        return job, int(index) if index else None

    @classmethod
    def node_of(cls, environ: Mapping[str, str]) -> str:
        """Return Slurm's name of the node, by which it can be excluded."""
        return environ.get("SLURMD_NODENAME") or os.uname().nodename

    @classmethod
    def hosts_of(cls, environ: Mapping[str, str]) -> Sequence[str]:
        """Return the nodes of the allocation.

        In the order in which ``scontrol show hostnames`` prints them, without asking.
        """
        nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""
        return read_nodes(nodes) if nodes and environ.get("SLURM_JOB_ID") else ()

    @classmethod
    def job_of(cls, environ: Mapping[str, str]) -> tuple[str, str]:
        """Return id and node of this process's job; an array's element has an id of its own."""
        return environ.get("SLURM_JOB_ID", ""), environ.get("SLURMD_NODENAME", "")

    @classmethod
    def end_time_of(cls, environ: Mapping[str, str]) -> float | None:
        """Return when this task reaches its limit; a slot is told by the task above it."""
        given = environ.get("SLURM_JOB_END_TIME")  # since 23.02
        told = super().end_time_of(environ)
        return float(given) if told is None and given else told

    def quick(self) -> OwnTask:
        """Return the same that waits for an answer no longer than a third of a minute."""
        made = copy.copy(self)
        made.tries, made.timeout_s = QUICK_TRIES, QUICK_TIMEOUT_S
        return made

    def time_left_s(self, job: str, index: int | None) -> float | None:
        """Return the seconds until a running task's limit; None where there is none."""
        return parse_time_left(self.ask(time_left_argv(_name(job, index))).stdout)

    def held_memory_mb(self, job: str, index: int | None) -> int | None:
        """Return the memory in MiB that a running task holds; None where Slurm does not say."""
        return parse_held(self.ask(held_argv(_name(job, index))).stdout)

    def slot_argv(
        self, environ: Mapping[str, str], count: int, task: tuple[str | None, int | None]
    ) -> list[str]:
        """Return srun's argv for one of so many equal slots of a task."""
        job, index = task
        held_mb = None
        if job and not names_memory(environ):
            # Else the step gets no share of the memory: it may use all of the task's.
            with contextlib.suppress(CouldNotAsk, SchedulerError):
                held_mb = self.held_memory_mb(job, index)
        gpus = self.study.resources.gpus
        return step_argv(environ, count, gpus, held_mb, threads_per_core())

    def seat_argv(self, environ: Mapping[str, str], gpus: int) -> list[str]:
        """Return srun's argv for one of several workers that share all GPUs of a task."""
        return seat_argv(environ, self.study.resources.so_many_gpus(gpus))

    def slot_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for srun: the task's, less what would describe the step."""
        return step_environment(environ)

    def requeue(self, environ: Mapping[str, str]) -> None:
        """Put the job of this process back into the queue: its time is over."""
        job = environ.get("SLURM_JOB_ID")
        if job:
            self.run(["scontrol", "requeue", job], environ, COMMAND_TIMEOUT_S)

    def commands_from_task(self, environ: Mapping[str, str]) -> dict[str, Any] | None:
        """Return whether scontrol and sbatch can be called from this task's node."""
        job = environ.get("SLURM_JOB_ID", "0")
        refused = self._call(["scontrol", "show", "job", job], environ)
        fact: dict[str, Any] = {"scontrol": refused, "sbatch": "", "may_submit": True}
        try:
            fact["may_submit"] = self.nodes_may_submit()
            self.check_site(embedded=False)
            fact["preemption"] = self.preemption()
        except SweepError as error:
            fact |= {"sbatch": error.message, "hint": error.hint}
        return fact

    def preemption(self) -> dict[str, Any]:
        """Return how the study's tasks are preempted: mode, grace_time_s, signals, kill_wait_s."""
        return {}

    def warn_task(self, environ: Mapping[str, str]) -> bool:
        """Have Slurm send this task the signal that it gets before its time limit.

        Raises:
            SchedulerError: scancel cannot be called from here.
        """
        argv = ["scancel", "--batch", "--signal=USR1", environ.get("SLURM_JOB_ID", "0")]
        refused = self._call(argv, environ)
        if refused:
            raise SchedulerError(f"scancel cannot be called from the node: {refused[:200]}")
        return True

    def _call(self, argv: Sequence[str], environ: Mapping[str, str]) -> str:
        """Call one of Slurm's commands as this task would; return why it failed, or ""."""
        try:
            answer = self.run(argv, environ, COMMAND_TIMEOUT_S)
        except SchedulerError as error:
            return error.message
        said = strip_words(f"{answer.stdout}\n{judged(answer.stderr)}".strip())[:300]
        return "" if answer.returncode == 0 else said or f"exit code {answer.returncode}"


def threads_per_core(path: Path = SIBLINGS) -> int:
    """Return how many hardware threads a core of this machine has; 1 where that is not known."""
    try:
        return len(expand_nodes(f"[{path.read_text().strip()}]"))
    except (OSError, ValueError):
        return 1


def _name(job: str, index: int | None) -> str:
    return job if index is None else f"{job}_{index}"
