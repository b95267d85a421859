"""The programs that a test cluster needs: look for them, install them with apt as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = ("slurm-wlm", "slurmdbd", "munge", "mariadb-server")
PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "sbatch",
    "sacctmgr",
    "mariadbd",
    "mariadb",
    "mariadb-install-db",
)
SERVICES = ("munge", "mariadb", "slurmd", "slurmctld", "slurmdbd")
POLICY = Path("/usr/sbin/policy-rc.d")


class Missing(Exception):
    """The cluster cannot run on this machine; the text says what is missing."""


def find_program(name: str) -> str | None:
    """Return where a program lies, also when the caller's PATH lacks the sbin folders."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":" + SEARCH_PATH)


def list_missing() -> list[str]:
    """Return the programs that a cluster needs and this machine lacks."""
    return [name for name in PROGRAMS if find_program(name) is None]


def ensure_packages() -> None:
    """Install what is missing, without starting any system service.

    Raises:
        Missing: not root, no apt-get, or the installation failed.
    """
    if os.geteuid() != 0:
        raise Missing(
            "a Slurm cluster is brought up by root only (several slurmd, a user account of its "
            "own, device nodes); run the tests as root in a container or a virtual machine"
        )
    missing = list_missing()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Missing(f"programs {', '.join(missing)} (and no apt-get to install them)")
    made_policy = not POLICY.exists()
    if made_policy:  # invoke-rc.d asks this file whether a package may start its service
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        install = ("install", "-y", "--no-install-recommends", *PACKAGES)
        if _apt(*install).returncode != 0:
            _apt("update")
            done = _apt(*install)
            if done.returncode != 0:
                tail = done.stdout[-600:].strip()
                raise Missing(f"apt-get install {' '.join(PACKAGES)} failed:\n{tail}")
        if Path("/run/systemd/system").exists():  # nor at the next boot
            subprocess.run(["systemctl", "disable", "-q", *SERVICES], check=False)
    finally:
        if made_policy:
            POLICY.unlink(missing_ok=True)
    missing = list_missing()
    if missing:
        raise Missing(f"programs {', '.join(missing)}, although their packages were installed")


def _apt(*arguments: str) -> subprocess.CompletedProcess[str]:
    # The lock timeout lets two sessions install at once, one after the other.
    return subprocess.run(
        ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
