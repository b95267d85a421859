"""The cluster's user who isn't root: an installed sweep, and a home to work in.

Root's own Python may lie where no other user gets to, so the user has a virtual environment within
the cluster's folder, with the packages of the one that runs the tests, and a copy of the checkout.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster, Missing
from tests.cluster.processes import is_stepd, read_parents, read_start, shows_job, wait_for
from tests.waiting import PATIENCE_S, text_of

ROOT = Path(__file__).parents[2]
COPIED = ("sweep", "templates", "trainer", "studies")
LOOK_EVERY_S = 5.0  # at a study whose tasks run
_CHECK = "import psycopg2, click, optuna, ruamel.yaml"


class User:
    """Runs sweep's commands as the cluster's user, as if on the login node.

    Args:
        cluster: One that is up.
        folder: Where study files lie and commands start; made, and owned by the user.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.bin = _install(cluster)
        self.runs = folder / "runs"
        self.make(folder)

    def make(self, folder: Path) -> Path:
        """Return a folder made for the user."""
        folder.mkdir(parents=True, exist_ok=True)
        shutil.chown(folder, self.cluster.user, self.cluster.user)
        return folder

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        """Return a file of the user's in the folder."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        shutil.chown(path, self.cluster.user, self.cluster.user)
        return path

    def study(self, name: str, command: Sequence[str] | str, **settings: Any) -> Path:
        """Return a study file: one float to vary, metric ``value``, on Slurm with ``settings``.

        The name of the file is safe, whatever the study's is.
        """
        given: dict[str, Any] = {
            "name": name,
            "command": command,
            "objective": {"metric": "value", "direction": "maximize"},
            "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
            "sampler": "random",
            "trials": 10,
            "max_parallel": 5,
            "executor": "slurm",
            "resources": {"time": "00:20:00", "cpus": 1, "gpus": 0, "memory": "200M"},
        }
        # JSON is YAML.
        number = len(list(self.folder.glob("study*.yaml")))
        return self.write(f"study{number}.yaml", json.dumps(given | settings, indent=1))

    def env(self, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return what is set beside the cluster's environment."""
        path = f"{self.bin}:{self.cluster.env()['PATH']}"
        return {
            "PATH": path,
            "SWEEP_RUNS": str(self.runs),
            "COLUMNS": "200",
            "SWEEP_SITE_CONFIG": "",
            "SWEEP_USER_CONFIG": "",
            **(changes or {}),
        }

    def sweep(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        code: int | None = 0,
        timeout_s: float = 2 * PATIENCE_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of sweep's; fail when it ends with another exit code (None: any)."""
        argv = [str(self.bin / "sweep"), *map(str, arguments)]
        done = self.cluster.run(
            argv, user=self.cluster.user, env=self.env(env), cwd=self.folder, timeout_s=timeout_s
        )
        if code is not None and done.returncode != code:
            raise AssertionError(
                f"{shlex.join(argv[1:])} left with {done.returncode}, not {code}\n"
                f"{done.stdout}\n{done.stderr}\n{self.explain()}"
            )
        return done

    def start(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command of sweep's without waiting for it."""
        argv = [str(self.bin / "sweep"), *map(str, arguments)]
        return self.cluster.start(argv, user=self.cluster.user, env=self.env(env), cwd=self.folder)

    def status(self, name: str) -> dict[str, Any]:
        """Return what ``sweep status --json`` prints."""
        return dict(json.loads(self.sweep("status", name, "--json").stdout))

    def trials(self, name: str) -> list[dict[str, Any]]:
        """Return every trial, final or not, as ``sweep collect --format json`` prints them."""
        states = ("waiting", "running", "complete", "pruned", "failed", "cancelled")
        chosen = [part for state in states for part in ("--state", state)]
        done = self.sweep("collect", name, "--format", "json", *chosen)
        return list(json.loads(done.stdout))

    def wait_state(self, name: str, *states: str, timeout_s: float = 120) -> dict[str, Any]:
        """Return the status once the study is in one of these states, and not before."""
        seen: dict[str, Any] = {}
        next_look = 0.0

        def has_come() -> bool:
            """Each look is a command: while the study's tasks run, few are made."""
            nonlocal next_look
            if time.monotonic() < next_look and self.has_tasks(name):
                return False
            seen.update(self.status(name))
            next_look = time.monotonic() + LOOK_EVERY_S
            return seen["state"] in states

        try:
            wait_for(has_come, timeout_s, f"{name} to be {' or '.join(states)}", pause_s=1.0)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{seen}\n{self.explain()}") from None
        return seen

    def queue(self) -> list[list[str]]:
        """Return the user's jobs that wait or run: id, name, state, reason; an element a row."""
        done = self.cluster.run(
            ["squeue", "-h", "-r", "-u", self.cluster.user, "-o", "%i|%j|%T|%r"], check=True
        )
        return [line.split("|") for line in done.stdout.splitlines()]

    def has_tasks(self, name: str) -> bool:
        """Tell whether elements of a study's array wait or run, by the names of its jobs."""
        return any("_" in row[0] and name in row[1] for row in self.queue())

    def wait_pending(self, reason: str, timeout_s: float = 60) -> None:
        """Wait until all elements of arrays are pending for a reason: slurmctld has none for a job
        that it has not looked at since it was submitted."""

        def are_pending() -> bool:
            seen = {tuple(row[2:]) for row in self.queue() if "_" in row[0]}
            return seen == {("PENDING", reason)}

        try:
            wait_for(are_pending, timeout_s, f"the array to wait: {reason}")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.queue()}\n{self.explain()}") from None

    def wait_empty(self, timeout_s: float = 120) -> None:
        """Wait until no job of the user's waits or runs."""
        try:
            wait_for(lambda: not self.queue(), timeout_s, "the queue to be empty")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.queue()}\n{self.explain()}") from None

    def processes(self) -> list[str]:
        """Return the user's processes that no job of Slurm's holds: pid and command line.

        The database's server does not show its job; it counts as held while the job serves it. What
        a task asks of Slurm does not either: it is held as the task above it is. Nor does what a
        slurmstepd is about to become.
        """
        import pwd

        uid = pwd.getpwnam(self.cluster.user).pw_uid
        found, served, data = [], "", self.runs / ".postgres"
        if (data / "lease").exists():
            served = text_of(data / "pgdata/postmaster.pid").partition("\n")[0]
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if entry.stat().st_uid != uid:
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
            above = [int(entry.name), *read_parents(int(entry.name))]
            if served and int(served) in above:
                continue
            held = any(shows_job(pid) or is_stepd(pid) for pid in above)
            # Looked at last: what ended meanwhile shows neither an environment nor a start.
            if command and not held and read_start(int(entry.name)):
                found.append(f"{entry.name} {command}")
        return found

    def check_no_processes(self) -> None:
        """Wait until the user has no process outside of jobs; fail where one stays.

        What has been told to end may still be at it when a command returns.
        """
        try:
            wait_for(lambda: not self.processes(), 60, "what was started here to end")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.processes()}\n{self.explain()}") from None

    def check_nothing_left(self) -> None:
        """Wait until nothing of the user's is queued or alive; fail where something stays."""
        self.wait_empty()
        self.check_no_processes()

    def logs(self, name: str) -> str:
        """Return every log of a study's jobs, each under its name."""
        folder = self.runs / name / "logs"
        paths = sorted(folder.glob("*")) if folder.is_dir() else []
        return "\n".join(f"--- {path.name}\n{text_of(path)}" for path in paths)

    def explain(self) -> str:
        """Return the end of what jobs have logged, for a failure's message."""
        found = [str(row) for row in self.queue()[:20]]
        for path in sorted(self.runs.glob("*/logs/*"), key=lambda path: path.stat().st_mtime)[-8:]:
            found.append(f"--- {path}")
            found += text_of(path).splitlines()[-12:]
        return "\n".join(found)

    @contextmanager
    def leaving_nothing(self) -> Iterator[User]:
        """Cancel what is left of the user's jobs at the end, and end stray servers."""
        try:
            yield self
        finally:
            self.cluster.run(["scancel", "--signal=KILL", "-u", self.cluster.user])
            self.cluster.run(["scancel", "-u", self.cluster.user])
            wait_for(lambda: not self.queue(), 60, "the queue to be empty")
            self.sweep("db", "stop", code=None)
            for line in self.processes():
                with_pid = int(line.split()[0])
                try:
                    os.kill(with_pid, 9)
                except ProcessLookupError:
                    continue


def _install(cluster: Cluster) -> Path:
    """Return the ``bin`` folder of the user's virtual environment, made once a cluster.

    Raises:
        Missing: No Python that the user may run loads the packages of the tests'.
    """
    checkout, venv = cluster.root / "checkout", cluster.root / "venv"
    stamp = cluster.root / "installed"
    if stamp.exists() and stamp.read_text() == str(os.getpid()):
        return venv / "bin"
    shutil.rmtree(checkout, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    if not (venv / "bin/sweep").exists():
        _make_venv(cluster, venv, checkout)
    # The user cannot write there: else each process would compile the modules that it imports.
    cluster.run([str(venv / "bin/python"), "-m", "compileall", "-q", str(checkout)])
    stamp.write_text(str(os.getpid()))
    return venv / "bin"


def _make_venv(cluster: Cluster, venv: Path, checkout: Path) -> None:
    packages = sysconfig.get_paths()["purelib"]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    tried = []
    for python in (base / "bin" / version, Path("/usr/bin") / version, None):
        if python is None:  # a copy of the tests' own
            copied = cluster.root / "python"
            shutil.copytree(base, copied, symlinks=True, dirs_exist_ok=True)
            python = copied / "bin" / version
        shutil.rmtree(venv, ignore_errors=True)
        made = cluster.run(shlex.join([str(python), "-m", "venv", "--without-pip", str(venv)]))
        lib = venv / "lib" / version / "site-packages"
        if made.returncode == 0 and lib.is_dir():
            (lib / "tests.pth").write_text(f"{packages}\n{checkout}\n")
            check = shlex.join([f"{venv}/bin/python", "-c", _CHECK])
            checked = cluster.run(check, user=cluster.user)
            if checked.returncode == 0:
                program = venv / "bin/sweep"
                program.write_text(f'#!/bin/sh\nexec {venv}/bin/python -m sweep "$@"\n')
                program.chmod(0o755)
                return
            tried.append(f"{python}: {checked.stderr.strip()[-200:]}")
        else:
            tried.append(f"{python}: {made.stderr.strip()[-200:]}")
    raise Missing(f"a Python that {cluster.user} may run with {packages} ({'; '.join(tried)})")
