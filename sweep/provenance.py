"""What a result came from: code, environment, data and execution, recorded and compared.

A record has four axes, each a dictionary: ``code``, ``environment``, ``data`` and ``execution``.
``capture_study`` fills them once a study; ``capture_host`` describes the machine of an attempt and
belongs into its ``execution``. No record holds a secret: URLs are masked, and no environment is
dumped.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.differences import differences as differences
from sweep.packages import describe_python, mask
from sweep.paths import runs_folder
from sweep.study import Study
from sweep.training_env import search_path

ASK_TIMEOUT_S = 10.0
# Untracked files of these kinds are code that a commit would lack.
CODE_SUFFIXES = (".py", ".pyx", ".sh", ".jl", ".r", ".lua", ".c", ".cpp", ".cu", ".h")
MAX_UNTRACKED = 500
MAX_SCRIPT_BYTES = 4_000_000
# Data up to here is hashed by content (a fraction of a second), beyond by names, sizes and times.
MAX_HASHED_BYTES = 64_000_000
MAX_DATA_FILES = 200_000


def capture_study(study: Study, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the record of a study, as far as it is the same for all its trials.

    Args:
        environ: The launching shell's environment; this process's when None.
    """
    environ = os.environ if environ is None else environ
    workdir = Path(study.workdir)
    return {
        "code": {**_capture_git(workdir), "files": _hash_scripts(study.command, workdir)},
        "environment": _capture_environment(study, environ, workdir),
        "data": {path: _capture_data(workdir / path) for path in study.data},
        "execution": {
            "command": list(study.command),
            "launcher": study.launcher,
            "nodes": study.resources.nodes,
            "gpus_per_node": study.resources.gpu_count,
        },
    }


def capture_host() -> dict[str, Any]:
    """Return what this machine is: it belongs into the ``execution`` of an attempt's record."""
    gpus, driver = _ask_gpus()
    return {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "cpu": _name_cpu(),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": gpus,
        "driver": driver,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def _capture_git(workdir: Path) -> dict[str, Any]:
    """Return commit, branch, origin and uncommitted changes; or {"git": why there is none}."""
    if not shutil.which("git"):
        return {"git": "git is not installed"}
    try:
        top = Path(_git(workdir, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
        # All of the repository, not only the folder; the runs are results, not code.
        scope = [".", f":(exclude){_inside(runs_folder(), top)}"]
        changes = _git(top, "status", "--porcelain", "-z", "--untracked-files=no", "--", *scope)
        try:
            commit = _git(top, "rev-parse", "--verify", "HEAD").decode().strip()
        except _GitFailed:
            return {"git": "the repository has no commit yet", "repository": str(top)}
        others = _git(top, "ls-files", "-z", "--others", "--exclude-standard", "--", *scope)
        untracked = [
            name
            for name in sorted(os.fsdecode(others).split("\0"))
            if name.lower().endswith(CODE_SUFFIXES)
        ]
        diff = hashlib.sha256()
        if changes:
            diff.update(_git(top, "diff", "HEAD", "--binary", "--no-ext-diff", "--", *scope))
        for name in untracked[:MAX_UNTRACKED]:
            diff.update(name.encode("utf-8", "surrogateescape") + b"\0" + _digest(top / name))
        branch = _git(top, "rev-parse", "--abbrev-ref", "HEAD").decode().strip()
    except _GitFailed as error:
        return {"git": str(error)}
    try:
        origin = mask(_git(top, "config", "--get", "remote.origin.url").decode().strip())
    except _GitFailed:
        origin = None
    is_dirty = bool(changes or untracked)
    return {
        "git": "ok",
        "repository": str(top),
        "origin": origin,
        "commit": commit,
        "branch": branch if branch != "HEAD" else None,
        "dirty": is_dirty,
        "diff": diff.hexdigest() if is_dirty else None,
        "untracked": untracked[:20],
    }


class _GitFailed(Exception):
    """Git did not answer; the text is why."""


def _git(folder: Path, *arguments: str) -> bytes:
    # Without optional locks: a record must not disturb the user's own git at work.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            env=environ,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _GitFailed(f"git did not answer in {ASK_TIMEOUT_S:g} s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _GitFailed(mask(lines[0]) if lines else f"git ended with code {done.returncode}")
    return done.stdout


def _inside(path: Path, top: Path) -> str:
    """Return a path relative to a repository, or one that names nothing where it lies outside."""
    try:
        return str(path.resolve().relative_to(top.resolve()))
    except ValueError:
        return ".git"


def _hash_scripts(command: Sequence[str], workdir: Path) -> dict[str, str]:
    """Return {path: SHA-256} of the files that a command names, and of its modules' folders."""
    named: set[Path] = set()
    for before, element in zip(("", *command), command, strict=False):
        if "{" in element or "\n" in element:
            continue
        if before == "-m":
            module = workdir.joinpath(*element.split("."))
            package = module if module.is_dir() else module.parent
            if module.is_dir() or module.with_suffix(".py").is_file():
                is_flat = package == workdir
                named |= {module.with_suffix(".py")} if is_flat else set(package.glob("*.py"))
        else:
            named.add(workdir / element)
    found = {}
    for path in sorted(named):
        try:
            if path.is_file() and path.stat().st_size <= MAX_SCRIPT_BYTES:
                found[os.path.relpath(path, workdir)] = _digest(path).hex()
        except OSError:
            continue
    return found


def _digest(path: Path) -> bytes:
    """Return the SHA-256 of a file, of nothing where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError:
        return b""
    return digest.digest()


def _capture_environment(
    study: Study, environ: Mapping[str, str], workdir: Path
) -> dict[str, Any]:
    given = study.environment
    found: dict[str, Any] = {"runtime": given.runtime, "image": given.image, "sweep": _version()}
    path = search_path(environ)
    image = workdir / given.image if given.image else None
    if given.runtime == "venv":
        path = str((image or workdir / ".venv") / "bin")
    elif image and image.is_file():
        found["image_sha256"] = _digest(image).hex()
    if given.runtime in ("none", "venv"):
        word = study.command[0] if os.path.basename(study.command[0]).startswith("python") else ""
        python = shutil.which(word or "python", path=path) or shutil.which("python3", path=path)
        if python:
            found |= describe_python(Path(python))
            lock = json.dumps(found["packages"], sort_keys=True)
            found["packages_sha256"] = hashlib.sha256(lock.encode()).hexdigest()
    return found


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sweep")
    except PackageNotFoundError:
        return "not installed (run from a checkout)"


def _capture_data(path: Path) -> dict[str, Any]:
    """Return count, size and hashes of a data file or folder; or {"missing": True}."""
    if not path.exists():
        return {"missing": True}
    files: list[tuple[str, int, int, Path]] = []
    for file in _walk(path):
        if len(files) == MAX_DATA_FILES:
            break
        status = file.stat()
        files.append((os.path.relpath(file, path), status.st_size, status.st_mtime_ns, file))
    files.sort()
    total = sum(size for _, size, _, _ in files)
    found = {
        "files": len(files),
        "bytes": total,
        "manifest_sha256": _hash_lines(f"{n}\0{size}\0{time}" for n, size, time, _ in files),
    }
    if len(files) == MAX_DATA_FILES:
        found["truncated"] = True
    elif total <= MAX_HASHED_BYTES:
        found["content_sha256"] = _hash_lines(f"{n}\0{_digest(f).hex()}" for n, _, _, f in files)
    return found


def _walk(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if file.is_file():
                yield file


def _hash_lines(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def _name_cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _ask_gpus() -> tuple[list[str], str | None]:
    """Return the names of this machine's NVIDIA GPUs and the driver's version."""
    if not shutil.which("nvidia-smi"):
        return [], None
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return [], "nvidia-smi failed"
    rows = [line.rpartition(", ") for line in done.stdout.splitlines() if ", " in line]
    return [name for name, _, _ in rows], rows[0][2] if rows else None
