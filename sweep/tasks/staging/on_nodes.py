"""Copies for a trial on several nodes: a step stages on each, and keeps them while it trains.

What each found lies as JSON in a folder that all nodes see. A path counts where it is the same on
all of them. The step ends when the file ``hold`` in that folder is gone, or with its job. The
folder of a task that was killed is removed by the next one, or by ``sweep data purge``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError
from sweep.core.executors import kind_of
from sweep.core.files import make_private, read_json, read_tail, remove_tree, write_atomic
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import ENDED, Scheduler
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.schedulers.choose import resolve, scheduler_of

OPTION = "--stage"  # of ``sweep.task``
POLL_S = 0.5
END_S = 10.0
DAY_S = 86_400.0
_PREFIX = "step-"
PROCESS_VARIABLE, NODE_VARIABLE = "SLURM_PROCID", "SLURMD_NODENAME"


@dataclass
class NodeStep:
    """A step that stages on each node of a trial.

    Attributes:
        answers: What each node found, in the order of its tasks: ``data`` (paths by name),
            ``notes``, and ``error`` with ``message`` and ``hint`` where it may not train.
        why: Why there are no answers; "" where there are.
    """

    folder: Path
    child: subprocess.Popen[bytes] | None
    answers: list[dict[str, Any]]
    why: str = ""

    def path_of(self, name: str) -> Path | None:
        """Return where all nodes have a data set; None where they have no path in common."""
        paths = {str(one["data"][name]) for one in self.answers}
        return Path(paths.pop()) if len(paths) == 1 else None

    def why_not(self, name: str) -> str:
        """Return in words why there is no such path."""
        if self.why:
            return self.why
        listed = ", ".join(f"{one['node']}: {one['data'][name]}" for one in self.answers)
        return f"the trial's nodes have no path in common ({listed})"

    def end(self) -> None:
        """Let go of the copies."""
        if self.child is None:
            return
        with contextlib.suppress(OSError):
            _hold(self.folder).unlink()
        if not self.answers:  # nobody is to wait for what they were at
            self.child.terminate()
        try:
            self.child.wait(END_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child = None
        with contextlib.suppress(SweepError):
            remove_tree(self.folder)


def stage(
    study: Study,
    folder: StudyFolder,
    environ: Mapping[str, str],
    stop: Callable[[], bool],
    *,
    is_strict: bool,
) -> NodeStep | None:
    """Stage a study's data on each node of this job; None where ``stop`` said to leave meanwhile.

    Args:
        study: Of whose trial this is the job; each node stages as if it were alone.
        is_strict: As for ``Stager``.
    """
    nodes = study.resources.nodes
    place = make_private(folder.data / f"{_PREFIX}{secrets.token_hex(6)}")
    write_atomic(_owner(place), json.dumps(_this_task(study, environ)) + "\n")
    write_atomic(place / "study.json", study.to_json() + "\n")
    write_atomic(place / "request.json", json.dumps({"is_strict": is_strict}) + "\n")
    _hold(place).touch()
    argv = [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap"),
        *(sys.executable, "-m", "sweep.task", str(folder.root), OPTION, str(place)),
    ]
    log = place / "log.txt"
    step = NodeStep(place, None, [])
    try:
        with log.open("wb") as stream:
            step.child = subprocess.Popen(
                argv,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
    except OSError as error:
        step.why = f"no step could be started on its nodes: {argv[0]}: {error.strerror}"
        return step
    while True:
        has_ended = step.child.poll() is not None  # asked before its last answers are read
        found = [read_json(place / f"{number}.json") for number in range(nodes)]
        step.answers = [one for one in found if one is not None]
        if len(step.answers) == nodes:
            return step
        if has_ended:
            step.why = f"the step on its nodes ended: {' '.join(read_tail(log, 3))}"
            step.answers = []
            step.end()
            return step
        if stop():
            step.answers = []
            step.end()
            return None
        time.sleep(POLL_S)


def clear_dead(folder: StudyFolder, schedule: Scheduler) -> list[Path]:
    """Remove the folders of steps whose task is gone; return them.

    On this machine the owner's process tells; of others the scheduler does, which is asked once.

    Raises:
        SweepError: It does not answer, or one cannot be removed.
    """
    dead, asked = [], {}
    for place in sorted(folder.data.glob(f"{_PREFIX}*")):
        try:
            owner = read_json(_owner(place)) or {}
            if owner.get("boot") == processes.boot_id():
                if not processes.is_alive(owner["pid"], owner["start"]):
                    dead.append(place)
            elif owner.get("job"):
                asked[place] = (str(owner["job"]), int(owner.get("index") or 0))
            elif not owner and not _hold(place).exists() and _age_s(place) > DAY_S:
                dead.append(place)  # killed before it had begun
        except FileNotFoundError:  # its owner has just removed it
            continue
    states = schedule.queued([job for job, _ in asked.values()]) if asked else {}
    live = {task for task, state in states.items() if state.state != ENDED}
    dead += [place for place, task in asked.items() if task not in live]
    for place in dead:
        remove_tree(place)
    return dead


def clear_study(folder: StudyFolder) -> tuple[list[Path], str]:
    """Return what ``clear_dead`` has removed of a study, and why the rest stays; "" where none."""
    try:
        study = resolve(Study.read(folder.study))
        return clear_dead(folder, scheduler_of(folder, study)), ""
    except (SweepError, OSError) as error:
        return [], str(error)


def has_steps(folder: StudyFolder) -> bool:
    """Tell whether any step of a study's trials has a folder, live or dead."""
    return any(folder.data.glob(f"{_PREFIX}*"))


def _this_task(study: Study, environ: Mapping[str, str]) -> dict[str, Any]:
    job, index = kind_of(study).task_of(environ)
    pid = os.getpid()
    process = {"boot": processes.boot_id(), "pid": pid, "start": processes.start_time(pid)}
    return {"job": job, "index": index, **process}


def _owner(place: Path) -> Path:
    return place / "owner.json"


def _age_s(place: Path) -> float:
    return time.time() - place.stat().st_mtime


def alone(study: Study) -> Study:
    """Return a study as one node of several stages for it."""
    return dataclasses.replace(study, resources=dataclasses.replace(study.resources, nodes=1))


def is_held(place: Path) -> bool:
    """Tell whether the copies are still needed."""
    return _hold(place).exists()


def answer(place: Path, environ: Mapping[str, str], found: Mapping[str, Any]) -> None:
    """Write what this node found, for who waits for it."""
    node = environ.get(NODE_VARIABLE) or os.uname().nodename
    file = place / f"{environ.get(PROCESS_VARIABLE, '0')}.json"
    write_atomic(file, json.dumps({"node": node, **found}) + "\n")


def _hold(place: Path) -> Path:
    return place / "hold"
