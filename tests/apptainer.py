"""The real Apptainer for tests: installed where it is missing, with an image in a blink.

Debian has it in sid only. The package is downloaded with an apt configuration of its own (nothing
of the system is upgraded), made to run with the C library that it needs where the system's is
older, and installed. As root only; a test without it is skipped loudly, or fails (see tests.needs).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
HELPERS = ("squashfuse", "fuse3", "patchelf")
LOCK = Path("/tmp/sweep-tests-apptainer.lock")
PRIVATE_LIBC = "usr/libexec/apptainer/libc"
# Of libc6, what the package's programs are linked to.
LIBRARIES = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libresolv.so.2")
STARTERS = ("usr/bin/apptainer", "usr/libexec/apptainer/bin/starter")
MOUNT_POINTS = (
    "usr",
    "etc",
    "tmp",
    "proc",
    "sys",
    "dev",
    "root",
    "home",
    "var/tmp",
    "run",
    "opt",
    "mnt",
    "work",
)
EMPTY_FILES = ("passwd", "group", "hosts", "resolv.conf", "localtime", "nsswitch.conf")


class Missing(Exception):
    """Apptainer is not here and cannot be installed; the text says why."""


def find() -> Path | None:
    """Return the program that runs here, or None."""
    for name in ("apptainer", "singularity"):
        path = shutil.which(name)
        if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return Path(path)
    return None


@cache
def ensure() -> Path:
    """Return apptainer's program, installed if need be.

    Raises:
        Missing: It is not here, and could not be installed.
    """
    found = find()
    if found is None:
        if os.geteuid() != 0:
            raise Missing("apptainer is not installed, and only root may install it")
        if not shutil.which("apt-get") or os.uname().machine != "x86_64":
            raise Missing("apptainer is not installed; the tests install it on Debian, x86_64")
        with LOCK.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two sessions at once: the second finds it there
            found = find() or _install()
    _prepare(found)
    return found


def _install() -> Path:
    with tempfile.TemporaryDirectory(prefix="sweep-apptainer-") as name:
        folder = Path(name)
        config = _sid(folder)
        env = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C.UTF-8"}
        _run(["apt-get", "-q", "update"], folder, env)
        _run(["apt-get", "-q", "download", "apptainer", "libc6"], folder, env)
        _apt_install(folder, *HELPERS)
        package, libc = next(folder.glob("apptainer_*.deb")), next(folder.glob("libc6_*.deb"))
        _run(["dpkg-deb", "-R", package.name, "package"], folder)
        if _needs_newer_libc(folder / "package"):
            _run(["dpkg-deb", "-x", libc.name, "libc"], folder)
            _carry_libc(folder / "package", folder / "libc")
            _run(["dpkg-deb", "-Znone", "-b", "package", "patched.deb"], folder)
            package = folder / "patched.deb"
        folder.chmod(0o755)
        _apt_install(folder, f"./{package.name}")
    found = find()
    if found is None:
        raise Missing("apptainer was installed, and does not start")
    return found


def _sid(folder: Path) -> Path:
    """Write an apt configuration that knows sid alone, and keeps its lists here."""
    for name in ("lists/partial", "cache/archives/partial", "empty"):
        (folder / name).mkdir(parents=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "sid.list").write_text(f"deb [signed-by={keyring}] {MIRROR} sid main\n")
    config = folder / "apt.conf"
    config.write_text(
        f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
        f'Dir::Etc::sourcelist "{folder}/sid.list";\nDir::Etc::sourceparts "{folder}/empty";\n'
        f'Dir::Etc::preferencesparts "{folder}/empty";\nAPT::Sandbox::User "root";\n'
        'Acquire::Check-Valid-Until "false";\nAcquire::Languages "none";\n'
    )
    return config


def _needs_newer_libc(package: Path) -> bool:
    control = (package / "DEBIAN/control").read_text()
    wanted = re.search(r"libc6 \(>= ([^)]+)\)", control)
    if wanted is None:
        return False
    have = _run(["dpkg-query", "-W", "-f=${Version}", "libc6"], package).stdout
    argv = ["dpkg", "--compare-versions", have, "lt", wanted[1]]
    return subprocess.run(argv, check=False).returncode == 0


def _carry_libc(package: Path, libc: Path) -> None:
    """Give the package's programs the C library that they need, in a folder of their own."""
    private = package / PRIVATE_LIBC
    private.mkdir(parents=True)
    for name in LIBRARIES:
        source = next(path for path in libc.rglob(name) if path.exists())
        shutil.copy(source.resolve(), private / name)
    place = f"/{PRIVATE_LIBC}"
    for name in STARTERS:
        program = next(
            path for path in (package / name, *package.rglob(Path(name).name)) if path.is_file()
        )
        _run(["patchelf", "--set-interpreter", f"{place}/{LIBRARIES[0]}", str(program)], package)
        rpath = f"{place}:/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu"
        _run(["patchelf", "--force-rpath", "--set-rpath", rpath, str(program)], package)
    control = package / "DEBIAN/control"
    control.write_text(re.sub(r"libc6 \(>= [^)]+\)", "libc6", control.read_text()))


def _apt_install(folder: Path, *packages: str) -> None:
    argv = [
        "apt-get",
        "-q",
        "-y",
        "-o",
        "DPkg::Lock::Timeout=300",
        "install",
        "--no-install-recommends",
        *packages,
    ]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        _run(argv, folder, env)
    except Missing:
        _run(["apt-get", "-q", "update"], folder, env)
        _run(argv, folder, env)


def _run(
    argv: list[str], folder: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise Missing(f"{' '.join(argv[:3])} failed: {done.stdout.strip()[-500:]}")
    return done


def _prepare(program: Path) -> None:
    """Make it work in a container that lacks a capability, and for users who aren't root."""
    if os.geteuid() != 0:
        return
    argv = [str(program), "config", "global", "--set", "root default capabilities", "no"]
    subprocess.run(argv, check=False, capture_output=True)
    if Path("/dev/fuse").exists():
        Path("/dev/fuse").chmod(0o666)
    for kind in ("uid", "gid"):  # where root lacks a capability, definitions need a namespace
        ranges = Path(f"/etc/sub{kind}")
        text = ranges.read_text() if ranges.exists() else ""
        if not re.search(r"^(root|0):", text, re.MULTILINE):
            ranges.write_text(f"{text}root:100000:65536\n")


# Images


def make_tree(folder: Path, programs: Sequence[str] = ()) -> Path:
    """Make a sandbox directory: mount points alone, to be run with ``-B /usr``; or a tree that has
    these programs with their libraries, and nothing else (no Python, say)."""
    for name in MOUNT_POINTS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    for name in EMPTY_FILES:
        (folder / "etc" / name).touch()
    for name in programs:
        path = shutil.which(name)
        assert path is not None, f"{name} is on no PATH"
        _copy(Path(path), folder / "usr/bin" / name)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            kind = "lib64" if "/lib64/" in library else "lib"
            _copy(Path(library), folder / "usr" / kind / Path(library).name)
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source.resolve(), target)


def make_sif(folder: Path, target: Path) -> Path:
    """Build a SIF file of a sandbox directory."""
    argv = [str(ensure()), "build", "--force", str(target), str(folder)]
    subprocess.run(argv, check=True, capture_output=True)
    target.chmod(0o755)
    return target


if __name__ == "__main__":
    print(ensure())
