"""An element of a local array: what is known of it while it runs, and how it is started.

What runs a module of sweep is forked from the runner, which has imported it (``core.system.fork``);
anything else is started as a program.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from sweep.core.system.fork import Forked, fork
from sweep.core.system.processes import Process, spawn

MODULE = "sweep.task"  # what the elements of a study run
TASK_NAME = "sweep task"  # of a forked one, in top and /proc/PID/comm
END_NAME = "sweep finaliser"


@dataclass
class Element:
    """One element that runs. Times are of the monotonic clock.

    Attributes:
        verdict: Word for its end, where it was decided before it ended.
        left: Its own process has ended, but something that it started has not.
    """

    index: int
    process: subprocess.Popen[bytes] | Forked
    gpus: list[str]
    grace_at: float | None = None
    limit_at: float | None = None
    kill_at: float | None = None
    verdict: str = ""
    reason: str = ""
    cancelled_by: int | None = None
    left: bool = False
    look_at: float | None = None
    give_up_at: float | None = None
    known: set[Process] | None = None  # what it had left behind at the last look

    def may_own(self, process: Process) -> bool:
        """Tell whether a process of this group number is the element's.

        Once its own process has been reaped and the group is empty, the number may be used again.
        """
        return self.known is None or process in self.known

    def deadline(self) -> float | None:
        """Return when something is to be done about it next, or None."""
        times = (self.grace_at, self.limit_at, self.kill_at, self.look_at)
        return min((at for at in times if at is not None), default=None)


def signal_group(element: Element, number: int) -> None:
    """Signal the group of an element whose process has not been reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(element.process.pid, number)


def runs_module(argv: Sequence[str]) -> bool:
    """Return whether a command runs the module of sweep whose elements are forked."""
    return list(argv[:3]) == [sys.executable, "-m", MODULE]


def load(argv: Sequence[str]) -> ModuleType | None:
    """Return the module of sweep that a command runs, with all that it will import; None of others.

    Where it cannot be imported, each element says why in its own log.
    """
    if not runs_module(argv):
        return None
    try:
        module = importlib.import_module(MODULE)
        module.work_of(argv[3:])
    except Exception:
        traceback.print_exc()
        return None
    gc.freeze()  # or the first collection in each child would copy all of it
    return module


def start(
    module: ModuleType | None,
    argv: Sequence[str],
    cwd: Path,
    env: dict[str, str],
    log: Path,
    *,
    is_element: bool = True,
) -> subprocess.Popen[bytes] | Forked:
    """Start a command; unlike the finaliser, an element gets SIGTERM where the runner dies.

    Args:
        module: Whose commands are forked (see ``load``).
        log: Takes what it prints.

    Raises:
        NotStarted: It cannot be started.
    """
    if module is None or not runs_module(argv):
        return spawn(
            argv,
            cwd=cwd,
            env=env,
            stdout=log,
            die_with_parent=is_element,
            death_signal=signal.SIGTERM,
        )

    def work() -> int:
        sys.argv = [str(module.__file__), *argv[3:]]
        return int(module.main(sys.argv[1:]))

    name, death = (TASK_NAME, signal.SIGTERM) if is_element else (END_NAME, None)
    return fork(work, name=name, cwd=cwd, env=env, stdout=log, death_signal=death)
