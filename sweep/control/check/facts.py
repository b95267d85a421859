"""What a check asks of the software on a machine: one small function for each question.

Each returns plain data for ``judge``: no function here says whether something is well. What cannot
be asked is ``{"not_asked": why}``.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep.core.files import hash_file
from sweep.core.study import Environment, Study
from sweep.core.system import processes
from sweep.training.build import is_missing
from sweep.training.registry_names import read_registry_name

ASK_S = 20.0
IMPORTS = "import sweep.tasks.worker, sweep.storage.ledger, psycopg2"
# Programs by which each runtime starts; the first that is there counts.
PROGRAMS = {
    "conda": ("conda", "micromamba", "mamba"),
    "apptainer": ("apptainer", "singularity"),
    "singularity": ("singularity", "apptainer"),
    "enroot": ("enroot",),
}
_NAME = re.compile(r"[\w.-]+(:\d+)?([/#][\w.-]+)*(:[\w.-]+)?(@sha256:\w+)?")
_FILE = re.compile(r"\.(sif|sqsh|squashfs|img|def|tar|tar\.gz|tgz)$")


def say_of(argv: Sequence[str], timeout_s: float = ASK_S) -> tuple[int, str]:
    """Return the exit code and the output of a command; -1 where it cannot be run."""
    die = processes.die_with(os.getpid())
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            preexec_fn=die,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no answer in {timeout_s:.0f} s"
    except OSError as error:
        return -1, str(error.strerror)
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def ask_interpreter() -> dict[str, Any]:
    """Return sweep's own Python here: how long its imports take, and its C library."""
    began = time.monotonic()
    code, said = say_of([sys.executable, "-c", IMPORTS], 120.0)
    return {
        "path": sys.executable,
        "version": platform.python_version(),
        "import_s": round(time.monotonic() - began, 2),
        "error": said[-400:] if code else "",
        "glibc": glibc(),
    }


def glibc() -> str:
    """Return this machine's version of the C library; empty where it is another one."""
    return platform.libc_ver()[1]


def ask_setup(lines: Sequence[str]) -> dict[str, Any]:
    """Run the setup lines of the batch script as it does, and return how each went.

    Lines that only make sense together (``if``, ``fi``) count as one.
    """
    if not lines:
        return {"not_asked": "slurm.setup has no lines"}
    pieces: list[str] = []
    open_piece = ""
    for line in lines:
        open_piece = f"{open_piece}\n{line}" if open_piece else line
        if say_of(["bash", "-n", "-c", open_piece])[0] == 0:
            pieces.append(open_piece)
            open_piece = ""
    if open_piece:
        pieces.append(open_piece)
    mark = f"sweep-{secrets.token_hex(8)}"
    body = "\n".join(f'eval "${{lines[{i}]}}"; echo "{mark} {i} $?"' for i in range(len(pieces)))
    # The lines are arguments: nothing of them is quoted here.
    code, said = say_of(["bash", "-c", f'lines=("$@")\nset --\n{body}', "bash", *pieces], 120.0)
    results, rest = [], said
    for i, piece in enumerate(pieces):
        words, found, after = rest.partition(f"{mark} {i} ")
        status, _, after = after.partition("\n")
        results.append(
            {"line": piece, "code": int(status) if found else code, "said": words.strip()[-400:]}
        )
        if not found:
            break  # it left the shell
        rest = after
    return {"lines": results}


def ask_workdir(path: str) -> dict[str, Any]:
    """Return whether training could start in its folder."""
    return {
        "path": path,
        "exists": os.path.isdir(path),
        "enters": os.access(path, os.R_OK | os.X_OK),
    }


def ask_runtime(runtime: str) -> dict[str, Any]:
    """Return the program by which a runtime starts, and what it says of its version."""
    if runtime in ("none", "venv"):
        return {"not_asked": f"runtime {runtime} needs no program"}
    if runtime == "pyxis":
        code, said = say_of(["srun", "--help"])
        return {
            "runtime": runtime,
            "program": "srun" if "--container-image" in said else "",
            "version": "",
            "words": "" if code == 0 else said[-200:],
        }
    if runtime == "modules":
        code, said = say_of(["bash", "-lc", "type -t module"])
        return {
            "runtime": runtime,
            "program": said if code == 0 else "",
            "version": "",
            "words": "",
        }
    found = next((path for name in PROGRAMS[runtime] if (path := shutil.which(name))), "")
    argv = [found, "version"] if runtime == "enroot" else [found, "--version"]
    code, said = say_of(argv) if found else (0, "")
    return {
        "runtime": runtime,
        "program": found,
        "version": said.splitlines()[0] if said else "",
        "words": said[-200:] if code else "",
    }


def image_path(study: Study) -> Path | None:
    """Return where the image (or environment) of a study lies; None where it is no path."""
    given = study.environment
    if given.built:
        return Path(given.built)
    if given.runtime == "venv":
        return study.venv_folder
    if given.image is None or given.runtime == "none":
        return None
    return study.at_workdir(given.image)


def ask_image(
    study: Study, recorded: str | None, most_bytes: float = float("inf")
) -> dict[str, Any]:
    """Return whether the image is here, and its digest.

    Args:
        recorded: The digest at the last launch.
        most_bytes: A larger file is not read.
    """
    path = image_path(study)
    runtime = study.environment.runtime
    if path is None:
        return {"not_asked": f"runtime {runtime} has no image here"}
    if is_missing(study):
        return {"not_asked": "a job builds it before any task starts"}
    fact: dict[str, Any] = {
        "image": str(path),
        "given": study.environment.image,
        "runtime": runtime,
        "recorded": recorded,
        "sha256": None,
        "kind": "folder" if os.path.isdir(path) else "file" if os.path.isfile(path) else "",
        "readable": os.access(path, os.R_OK),
        "is_name": _is_name(study.environment.image or "", runtime),
    }
    if fact["kind"] == "file":
        fact["bytes"] = path.stat().st_size
        if fact["readable"] and fact["bytes"] <= most_bytes:
            fact["sha256"] = hash_file(path).hexdigest()
    if runtime == "venv":
        fact["python"] = os.access(path / "bin" / "python", os.X_OK)
    return fact


def _is_name(image: str, runtime: str) -> bool:
    """Tell whether an image is named in a registry, or an environment by its name."""
    if re.match(r"[a-z-]+://", image) or read_registry_name(image):
        return runtime not in ("venv", "conda")
    if runtime == "conda":
        return "/" not in image
    # Enroot and Pyxis take for a name what does not begin like a path.
    named = runtime in ("enroot", "pyxis") and not image.startswith((".", "/", "~"))
    return named and not _FILE.search(image) and bool(_NAME.fullmatch(image))


def ask_binds(environment: Environment, workdir: str = "") -> dict[str, Any]:
    """Return the rights on this host to what the container is to see.

    Args:
        workdir: In which relative sources lie.
    """
    if not environment.binds:
        return {"not_asked": "environment.binds names none"}
    found = []
    for bind in environment.binds:
        source, _, rest = bind.partition(":")
        source = os.path.join(workdir, os.path.expanduser(source))
        rights = os.R_OK | (os.X_OK if os.path.isdir(source) else 0)
        found.append(
            {
                "bind": bind,
                "source": source,
                "exists": os.path.exists(source),
                "reads": os.access(source, rights),
                "writes": os.access(source, os.W_OK),
                "read_only": rest.endswith(":ro") or rest == "ro",
                "is_made": environment.make_binds and not rest.endswith(":ro"),
            }
        )
    return {"binds": found}


def destinations(environment: Environment) -> list[tuple[str, bool, str]]:
    """Return what the container is to see, whether training may write there, and the bind."""
    found = []
    for bind in environment.binds:
        source, _, rest = bind.partition(":")
        where, _, mode = rest.partition(":")
        found.append((where or os.path.expanduser(source), mode != "ro", bind))
    return found
