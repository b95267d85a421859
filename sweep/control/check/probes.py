"""What a check asks of a machine and its surroundings: one small function for each question.

Space, the database, the scheduler, the clock, signals, GPUs, the network. As in ``facts``, nothing
here says whether something is well.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.control.check.facts import say_of
from sweep.control.check.inside import addresses
from sweep.core.errors import SweepError
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.storage.connection import Database
from sweep.storage.embedded.binaries import find_binaries, major_version
from sweep.storage.embedded.cluster import SETTINGS
from sweep.storage.embedded.interface import find_address
from sweep.storage.embedded.server import running
from sweep.storage.server_facts import read_facts
from sweep.storage.url import describe, dsn
from sweep.training.command import rendezvous

WRITTEN_BYTES = 1 << 20
PINGS = 5
RESERVED = 3  # superuser_reserved_connections, by default


def ask_space(folder: Path, *, write: bool) -> dict[str, Any]:
    """Return free blocks and inodes where checkpoints go, and whether a file can be written.

    Args:
        folder: Or one that does not exist yet: its nearest parent counts.
        write: Write a file there, which meets quotas as well.
    """
    while not folder.exists():
        folder = folder.parent
    stat = os.statvfs(folder)
    fact: dict[str, Any] = {
        "folder": str(folder),
        "free_bytes": stat.f_bavail * stat.f_frsize,
        "free_inodes": stat.f_favail if stat.f_files else None,
        "error": "",
    }
    if write:
        trial = folder / f".sweep-check-{secrets.token_hex(6)}"
        began = time.monotonic()
        try:
            with trial.open("wb") as stream:
                stream.write(os.urandom(WRITTEN_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
            fact["written_s"] = round(time.monotonic() - began, 4)
        except OSError as error:
            fact["error"] = str(error.strerror)
        finally:
            trial.unlink(missing_ok=True)
    return fact


def ask_scratch() -> dict[str, Any]:
    """Return the free space of this node's temporary folder."""
    try:
        return ask_space(Path(tempfile.gettempdir()), write=True)
    except FileNotFoundError as error:  # tempfile found none that can be written to
        return {
            "folder": os.environ.get("TMPDIR", "/tmp"),
            "free_bytes": 0,
            "free_inodes": None,
            "error": str(error),
        }


def ask_database(url: str, timeout_s: float = 8.0) -> dict[str, Any]:
    """Return how quickly a database answers, how many connections it takes, and its clock."""
    fact: dict[str, Any] = {"where": describe(dsn(url)), "error": "", "hint": ""}
    db = Database(url, timeout_s=timeout_s, application="sweep check")
    try:
        began = time.monotonic()
        db.connect()
        fact["connected_s"] = round(time.monotonic() - began, 4)
        pings = []
        for _ in range(PINGS):
            asked, wall_s = time.monotonic(), time.time()
            facts = read_facts(db)
            pings.append(time.monotonic() - asked)
            skew_s = facts.clock_s - (wall_s + time.time()) / 2
        fact |= {
            "latency_s": round(min(pings), 5),
            "max_connections": facts.max_connections,
            "reserved": facts.reserved,
            "used": facts.used,
            "role_limit": facts.role_limit,
            "database_limit": facts.database_limit,
            "version": facts.version,
            "skew_s": round(skew_s, 3),
        }
    except SweepError as error:
        fact |= {"error": error.message, "hint": error.hint}
    finally:
        db.close()
    return fact


def ask_embedded(folder: Path, *, elsewhere: bool, listen: str | None = None) -> dict[str, Any]:
    """Return the embedded server's state: asked if it runs, else whether its programs do here.

    Args:
        elsewhere: A job will serve it; the server that may run now is none of the study's.
        listen: The interface or address of this machine that it is to listen on.
    """
    try:
        if listen is not None:
            find_address(listen)
        server = None if elsewhere else running(folder)
        if server is not None:
            return {**ask_database(server.url()), "embedded": True}
        binaries = find_binaries()
        fact = {"embedded": True, "programs": str(binaries), "version": major_version(binaries)}
        if most := re.search(r"^max_connections = (\d+)$", SETTINGS, re.MULTILINE):
            fact |= {
                "max_connections": int(most[1]),
                "reserved": RESERVED,
                "used": 0,
                "role_limit": -1,
                "database_limit": -1,
            }
        return fact
    except SweepError as error:
        return {"embedded": True, "error": error.message, "hint": error.hint}


def ask_commands(schedule: Scheduler) -> dict[str, Any]:
    """Return which of the scheduler's commands can be called from here."""
    found = schedule.commands_from_task(os.environ)
    return found or {"not_asked": f"the study runs on {schedule.place}"}


def ask_clock(folder: Path) -> dict[str, Any]:
    """Return this node's clock, and how far the file system's is from it."""
    trial = folder / f".sweep-check-{secrets.token_hex(6)}"
    before_s = time.time()
    try:
        trial.write_text("x")
        files_s = trial.stat().st_mtime
    except OSError:
        return {"now_s": time.time(), "files_skew_s": None}
    finally:
        trial.unlink(missing_ok=True)
    now_s = time.time()
    return {"now_s": now_s, "files_skew_s": round(files_s - (before_s + now_s) / 2, 3)}


def ask_task_signal(schedule: Scheduler) -> dict[str, Any]:
    """Have this task sent the signal that it gets before its time limit; say if it came.

    Called in the main thread of the process that the batch script became.
    """
    came = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: came.set())
    try:
        try:
            if not schedule.warn_task(os.environ):
                return {"not_asked": "on one machine sweep's own runner sends the signals"}
        except SweepError as error:
            return {"not_asked": error.message}
        began = time.monotonic()
        while not came.is_set() and time.monotonic() - began < 15.0:
            time.sleep(0.05)
        return {"came": came.is_set(), "after_s": round(time.monotonic() - began, 2)}
    finally:
        signal.signal(signal.SIGUSR1, before)


def gpus_within(study: Study) -> int:
    """Return how many GPUs a trial's processes see on each node: a share of one counts as one."""
    wanted = study.resources
    return wanted.gpu_count or int(bool(wanted.shard or wanted.mps))


_GPU_FIELDS = "name,memory.total,compute_mode,driver_version"


def ask_gpus(study: Study) -> dict[str, Any]:
    """Return the GPUs of this node as nvidia-smi lists them, and what the task was given."""
    wanted = study.resources
    if not gpus_within(study):
        return {"not_asked": "the study asks for no GPU"}
    fact: dict[str, Any] = {
        "wanted": gpus_within(study),
        "shard": wanted.shard,
        "mps": wanted.mps,
        "gpus": [],
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "error": "",
        "rocm": bool(shutil.which("rocm-smi")),
    }
    code, said = say_of(["nvidia-smi", f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader"], 60.0)
    if code:
        fact["error"] = said[-300:]
        return fact
    names = ("name", "memory", "mode", "driver")
    rows = (line.split(", ") for line in said.splitlines())
    fact["gpus"] = [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]
    return fact


def ask_network(study: Study, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return this host's network interfaces, and whether the one that the study names is there."""
    found = addresses()
    every = [name for _, name in socket.if_nameindex()]
    wanted = study.ddp.interface
    missing = [name for name in (wanted or "").split(",") if name and name not in every]
    return {
        "host": socket.gethostname(),
        "first": rendezvous.first_host(study, environ),
        "wanted": wanted,
        "missing": missing,
        "addresses": {name: found.get(name, "") for name in every},
    }


def ask_ports(study: Study) -> dict[str, Any]:
    """Return how many ports of the study's range are free on this host."""
    low, high = study.ddp.port_range
    if study.world == 1:
        return {"not_asked": "a trial is one process and needs no port"}
    ports = range(low, high + 1)
    step = max(1, len(ports) // 500)  # a sample tells, and takes a hundredth of a second
    asked = ports[::step]
    return {
        "low": low,
        "high": high,
        "asked": len(asked),
        "free": sum(rendezvous.is_free(port) for port in asked),
    }
