"""What a test cluster changes on its machine: ports, a user account, lines in the hosts file."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import json
import os
import pwd
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.packages import Missing

HOSTS = Path("/etc/hosts")
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "freezer", "cpuset", "devices", "cpuacct")


@contextlib.contextmanager
def lock_machine() -> Iterator[None]:
    """Let one cluster at a time choose ports, add a user or edit the hosts file."""
    with open("/tmp/.sweep-slurm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def choose_ports(count: int) -> int:
    """Return the first of ``count`` free ports in a row, below the ephemeral range.

    Those of other clusters beneath /tmp are left alone, also before their daemons listen.
    """
    others = []
    for path in Path("/tmp").glob("sweep-*/cluster.json"):
        with contextlib.suppress(FileNotFoundError):  # that cluster has just gone down
            others.append(json.loads(path.read_text())["base_port"])
    for _ in range(200):
        base = random.randrange(20000, 30000, 20)
        if base not in others and all(_is_free(base + offset) for offset in range(count)):
            return base
    raise Missing(f"{count} free ports in a row between 20000 and 30000")


def add_user(root: Path, wanted: str = "sweeper") -> str:
    """Create the cluster's own user, its home beneath ``root``; return its name.

    Every cluster has a user to itself (sweeper, sweeper2, ...), so that "no process of this user
    is alive" can be tested beside another cluster.
    """
    home = root / "home"
    for number in range(1, 100):
        name = wanted if number == 1 else f"{wanted}{number}"
        with contextlib.suppress(KeyError):
            if pwd.getpwnam(name).pw_dir == str(home):
                return name
            continue
        options = ["--system", "--user-group", "--no-log-init", "--no-create-home"]
        options += ["--home-dir", str(home), "--shell", "/bin/bash"]
        subprocess.run(["useradd", *options, name], check=True, capture_output=True)
        return name
    raise Missing("a free user name")


def remove_user(root: Path, name: str) -> None:
    """Remove the cluster's user, if it is this cluster's."""
    with contextlib.suppress(KeyError):
        if pwd.getpwnam(name).pw_dir == str(root / "home"):
            subprocess.run(["userdel", name], check=False, capture_output=True)
    with contextlib.suppress(KeyError):
        if not grp.getgrnam(name).gr_mem:
            subprocess.run(["groupdel", name], check=False, capture_output=True)


def add_hosts(root: Path, names: list[str]) -> None:
    """Make the nodes' names resolve to this machine, in a marked block of the hosts file."""
    remove_hosts(root)
    text = HOSTS.read_text()
    if text and not text.endswith("\n"):
        text += "\n"
    begin, end = _marks(root)
    _write_hosts(f"{text}{begin}\n127.0.0.1 {' '.join(names)}\n{end}\n")


def remove_hosts(root: Path) -> None:
    """Take this cluster's block out of the hosts file."""
    begin, end = _marks(root)
    kept, inside = [], False
    text = HOSTS.read_text()
    for line in text.splitlines(keepends=True):
        inside = inside or line.rstrip("\n") == begin
        if not inside:
            kept.append(line)
        inside = inside and line.rstrip("\n") != end
    if "".join(kept) != text:
        _write_hosts("".join(kept))


def _write_hosts(text: str) -> None:
    """Write the hosts file in place: in a container it is a mount.

    It is never empty meanwhile: another cluster beside this one looks up its nodes.
    """
    with open(HOSTS, "r+") as file:
        file.write(text)
        file.truncate()


def explain_no_cgroups() -> str:
    """Return why proctrack/cgroup cannot run here; empty where it can."""
    lacking = [name for name in CONTROLLERS if not os.access(CGROUPS / name, os.W_OK)]
    if lacking:
        return f"writable cgroup v1 controllers {', '.join(lacking)} under {CGROUPS}"
    return ""


def remove_cgroups(uid: int, nodes: list[str]) -> None:
    """Remove the empty cgroups that a killed slurmd and its slurmstepd's left."""
    tops = list(CGROUPS.glob(f"*/slurm*/uid_{uid}"))
    if not any(_command(entry) == "slurmd" for entry in Path("/proc").glob("[0-9]*")):
        tops += [top for node in nodes for top in CGROUPS.glob(f"*/slurm_{node}")]
    for top in tops:
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _marks(root: Path) -> tuple[str, str]:
    return f"# begin of the Slurm test cluster in {root}", f"# end of {root}"


def _command(entry: Path) -> str:
    with contextlib.suppress(OSError):
        return (entry / "comm").read_text().strip()
    return ""


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
