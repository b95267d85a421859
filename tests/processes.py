"""Find and end the processes that belong to a folder of a test."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_S


@dataclass(frozen=True)
class Process:
    """A live process, and why it counts as the folder's."""

    pid: int
    command: str
    why: str
    name: str
    folder: Path


def find_processes(*folders: Path) -> list[Process]:
    """Return the live processes whose command line names one of ``folders`` or what lies in it.

    Those that work there count too; ``/tmp/pytest-57`` is not a part of ``/tmp/pytest-571``. This
    process and those above it do not count: pytest's own --basetemp names the folder too. All
    of /proc is read for it, which takes some ten milliseconds: who waits looks at longer intervals.
    """
    ours = ancestors(os.getpid())
    texts = [str(folder) for folder in folders]
    names = [re.compile(re.escape(text) + r"(?![\w.-])") for text in texts]
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in ours:
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            command = words.decode("utf-8", "replace")
            cwd = os.readlink(entry / "cwd")
            for folder, text, name in zip(folders, texts, names, strict=True):
                if name.search(command):
                    why = "command line"
                elif cwd == text or cwd.startswith(text + "/"):
                    why = f"works in {cwd}"
                else:
                    continue
                comm = (entry / "comm").read_text().strip()
                found.append(Process(int(entry.name), command.strip(), why, comm, folder))
                break
        except OSError:
            continue  # it has ended, or is a kernel thread or a zombie
    return sorted(found, key=lambda process: process.pid)


def ancestors(pid: int) -> set[int]:
    """Return a process and those above it."""
    found = set()
    while pid > 0:
        found.add(pid)
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(text.rpartition(")")[2].split()[1])
    return found


def end_processes(folder: Path, wait_s: float = 60.0) -> list[Process]:
    """Kill a folder's processes until none is left; return those that there were."""
    deadline = time.monotonic() + wait_s
    seen: dict[int, Process] = {}
    while found := find_processes(folder):
        for process in found:
            seen[process.pid] = process
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return list(seen.values())


def wait_until_gone(folder: Path, wait_s: float = PATIENCE_S) -> list[Process]:
    """Wait until a folder has no process; return those that are left."""
    deadline = time.monotonic() + wait_s
    while (found := find_processes(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
