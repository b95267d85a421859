"""Apptainer and Singularity: ``apptainer exec … image command``.

The environment is inherited; what must win over the image travels as APPTAINERENV_NAME, never on
the command line: there ``--env`` values are split at commas, seen by others, and evaluated by a
shell unless ``--no-eval`` stands with them.
"""

from __future__ import annotations

import csv
import io
import os
import pwd
from collections.abc import Sequence
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.study import Study
from sweep.training.command import launchers
from sweep.training.command.containers import (
    Built,
    around,
    binds_of,
    check_options,
    clean,
    image_of,
    own_names,
    place_names,
    wants_gpu,
)

_BINDS = "Use environment.binds: source[:destination[:ro]]."
_ENV = "Use environment.env."
OWNED = {
    "--bind": _BINDS,
    "--mount": _BINDS,
    "--env": _ENV,
    "--env-file": _ENV,
    "--pwd": "Use environment.workdir.",
    "--cwd": "Use environment.workdir.",
    "--workdir": "It is the task's scratch folder: $TMPDIR, or /tmp.",
    "--nv": "Use environment.gpu: nvidia.",
    "--rocm": "Use environment.gpu: rocm.",
    "--no-eval": "It is always set.",
}
_CLEANING = ("--cleanenv", "--containall")
_CONTAINING = ("--contain", "--containall")
_GPU = {"nvidia": ["--nv"], "rocm": ["--rocm"], "none": []}
# The variables of a rank as srun set them; its names alone are evaluated, and are checked.
_PASS_PLACE = (
    'for name in $(env | sed -n "s/^\\(SLURM[A-Z]*_[A-Z0-9_]*\\|[A-Z_]*VISIBLE_DEVICES\\)=.*/\\1/p"'
    '); do eval "export {prefix}$name=\\"\\$$name\\""; done\nexec "$@"'
)


def contain(
    study: Study, argv: Sequence[str], env: dict[str, str], folders: Sequence[str]
) -> Built:
    """Return the command within an image, a sandbox directory or a SIF.

    Args:
        folders: What it sees at the same paths.

    Raises:
        InputError: The section ``environment`` asks for what the runtime does not have.
    """
    given = study.environment
    program = given.runtime
    check_options(program, given.options, OWNED, "BW")
    for name, instead in (
        ("name", "Images are files here."),
        ("remap_root", "Write options: [--fakeroot]."),
    ):
        if getattr(given, name):
            raise InputError(f"environment.{name}: has no meaning with runtime {program}.", instead)
    prefix = f"{program.upper()}ENV_"
    env = clean(study, env, folders)
    is_clean = _has(given.options, _CLEANING, "eC")
    names = own_names(study, env)
    by_rank = is_clean and launchers.uses_srun(study)
    if is_clean and not by_rank:
        names += [name for name in place_names(env) if name not in names]
    env = env | {prefix + name: env[name] for name in names}
    scratch = env.get("TMPDIR") or "/tmp"
    # A contained /tmp is 64 MiB of memory.
    roomy = ["--workdir", scratch] if _has(given.options, _CONTAINING, "cC") else []
    started = [
        program,
        "exec",
        "--no-eval",
        *_GPU[wants_gpu(study)],
        *_binds(study, folders),
        *roomy,
        "--pwd",
        given.workdir or study.workdir,
        *given.options,
        image_of(study),
        *around(argv, given.setup),
    ]
    if by_rank:
        started = ["sh", "-c", _PASS_PLACE.replace("{prefix}", prefix), "sweep", *started]
    return started, env


def _binds(study: Study, folders: Sequence[str]) -> list[str]:
    found = []
    for source, destination, read_only in binds_of(study, folders):
        if set(source + destination) & set(',:"\\'):
            fields = ["type=bind", f"source={source}", f"destination={destination}"]
            row = io.StringIO()
            csv.writer(row, lineterminator="").writerow(fields + ["ro"] * read_only)
            found += ["--mount", row.getvalue()]
        else:
            same = source == destination and not read_only
            end = "" if same else f":{destination}" + ":ro" * read_only
            found += ["--bind", source + end]
    return found


def _has(options: Sequence[str], long: Sequence[str], letters: str) -> bool:
    return any(
        option in long or (option[:1] == "-" and option[:2] != "--" and set(option) & set(letters))
        for option in options
    )


def cache_variables(program: str, cache: str, tmp: str) -> dict[str, str]:
    """Return the variables that keep downloads and unpacking out of the home folder and /tmp."""
    prefix = program.upper()
    found = {f"{prefix}_CACHEDIR": cache, f"{prefix}_TMPDIR": tmp}
    return {name: os.environ.get(name) or value for name, value in found.items()}


def rights_options() -> list[str]:
    """Return what a build of a definition needs here beside itself: ``--fakeroot``, or nothing.

    Its %post section asks for all of root's rights, which root does not have in most containers;
    within a namespace of its own it has. Who isn't root gets there by default.
    """
    if os.geteuid() != 0 or has_all_rights(_read("/proc/self/status")):
        return []
    name = pwd.getpwuid(0).pw_name
    is_mapped = all(is_listed(_read(f"/etc/sub{kind}"), name) for kind in ("uid", "gid"))
    return ["--fakeroot"] if is_mapped else []


def has_all_rights(status: str) -> bool:
    """Tell whether a process has every capability up to the last that it could be given.

    Args:
        status: Its /proc/PID/status.
    """
    given = next((line.split()[1] for line in status.splitlines() if line[:7] == "CapPrm:"), "0")
    rights = int(given, 16)
    return rights > 0 and rights & (rights + 1) == 0


def is_listed(ranges: str, name: str) -> bool:
    """Tell whether a user has a range of ids in /etc/subuid or /etc/subgid, by name or as 0."""
    return any(line.split(":")[0] in (name, "0") for line in ranges.splitlines() if line.strip())


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
