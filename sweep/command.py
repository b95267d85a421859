"""What a trial starts: argv = container(launcher(the user's command)), and its environment.

No value of a parameter meets a shell: each is an argument of its own, or part of one. How values
become text:

- ``{lr}`` and ``{params}`` write Python's way, because most scripts are Python's: floats by repr
  (``1e-05``), ``True``, ``False``, ``None``, strings as they are, lists and maps as JSON.
- ``{overrides}`` writes Hydra's way: ``null``, ``true``, ``[a,b]``, quotes where needed.

An argument that mentions what this trial does not have (``{resume}`` at the first attempt, a
parameter whose condition does not hold) is left out; where it is nothing but that placeholder, the
option before it (``--resume {resume}``) goes with it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.errors import InputError, closest
from sweep.hydra_text import write_override
from sweep.placeholders import EDIT, RESERVED, SPREAD, Placeholder, parse
from sweep.study import Study
from sweep.training_env import TrialValues, environment
from sweep.yaml_text import write_mapping

PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
Built = tuple[list[str], dict[str, str]]


def write_config(params: Mapping[str, Any]) -> str:
    """Return the text of a trial's configuration: flat ``name: value`` lines, the same values for
    readers of YAML 1.1 and 1.2."""
    return write_mapping(params)


def write_text(value: Any) -> str:
    """Return a value as a Python script expects it on its command line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def fill(command: Sequence[str], values: TrialValues, optional: Sequence[str] = ()) -> list[str]:
    """Return the command with the trial's values in place of its placeholders.

    Args:
        optional: Names of parameters that a trial may lack (the space's and the fixed values);
            any other unknown placeholder is an error.

    Raises:
        InputError: A placeholder that names nothing, or a value that cannot be written.
    """
    known: dict[str, str | None] = {
        **{name: write_text(value) for name, value in values.params.items()},
        "config": str(values.config),
        "trial_dir": str(values.trial_dir),
        "seed": str(values.seed),
        "checkpoint_dir": str(values.checkpoint_dir),
        "resume": str(values.resume) if values.resume else None,
    }
    filled: list[str] = []
    for position, element in enumerate(command):
        pieces = _parse(element)
        names = [piece.name for piece in pieces if isinstance(piece, Placeholder)]
        if len(pieces) == 1 and names and names[0] in SPREAD:
            filled += _spread(names[0], values.params)
            continue
        for name in names:
            if name in SPREAD:
                raise InputError(f"command: {{{name}}} must be an argument of its own.")
            if name not in known and name not in optional:
                near = closest(name, [*RESERVED, *known, *optional])
                raise InputError(
                    f"command: unknown placeholder {{{name}}} in {element!r}.",
                    f"Did you mean {{{near}}}?" if near else "Write {{ and }} for braces.",
                )
        if any(known.get(name) is None for name in names):
            if len(pieces) == 1 and position and _is_option(command[position - 1]):
                filled.pop()
            continue
        filled.append(
            "".join(
                str(known[piece.name]) if isinstance(piece, Placeholder) else piece
                for piece in pieces
            )
        )
    return filled


def _parse(element: str) -> list[str | Placeholder]:
    try:
        return parse(element)
    except ValueError as error:
        raise InputError(f"command: {error}.") from None


def _is_option(element: str) -> bool:
    return bool(re.fullmatch(r"--?[A-Za-z][^={}\s]*", element))


def _spread(kind: str, params: Mapping[str, Any]) -> list[str]:
    if kind == "params":
        return [f"--{name}={write_text(value)}" for name, value in params.items()]
    try:
        return [write_override(name, value) for name, value in params.items()]
    except (TypeError, ValueError) as error:
        raise InputError(f"command: {{overrides}}: {error}.", "Use {config} instead.") from None


def _run_plain(study: Study, argv: list[str], env: dict[str, str]) -> Built:
    given = study.environment
    for name in ("image", "binds", "workdir", "options", "setup", "remap_root", "name"):
        if getattr(given, name):
            raise InputError(
                f"environment.{name}: has no meaning with runtime {given.runtime}.",
                "Name the runtime that it is for, or leave it out.",
            )
    return argv, env


def _run_venv(study: Study, argv: list[str], env: dict[str, str]) -> Built:
    given = study.environment
    for name in ("binds", "workdir", "options", "setup", "remap_root", "name"):
        if getattr(given, name):
            raise InputError(f"environment.{name}: has no meaning with runtime venv.")
    folder = Path(study.workdir, Path(given.image or ".venv").expanduser())
    if not (folder / "bin" / "python").exists():
        raise InputError(
            f"environment.image: no virtual environment at {folder} (bin/python is missing).",
            "Give the folder that `python -m venv` made.",
        )
    env = env | {
        "VIRTUAL_ENV": str(folder),
        "PATH": os.pathsep.join([str(folder / "bin"), env["PATH"]]),
    }
    env.pop("PYTHONHOME", None)
    return argv, env


# How each runtime wraps a command: (study, argv, environment) -> both as they are to be started.
RUNTIMES: dict[str, Callable[[Study, list[str], dict[str, str]], Built]] = {
    "none": _run_plain,
    "venv": _run_venv,
}
LATER_RUNTIMES = ("conda", "modules", "apptainer", "singularity", "enroot", "pyxis")


def _launch_alone(study: Study, argv: list[str]) -> list[str]:
    return argv


def _launch_auto(study: Study, argv: list[str]) -> list[str]:
    needs = study.resources
    if needs.nodes > 1 or needs.gpu_count > 1:
        raise InputError(
            f"launcher: one process on each of {needs.nodes * needs.gpu_count} GPUs comes with a "
            "later release.",
            "With `launcher: python` one process gets all GPUs of one node.",
        )
    return argv


# How each launcher wraps a command.
LAUNCHERS: dict[str, Callable[[Study, list[str]], list[str]]] = {
    "auto": _launch_auto,
    "python": _launch_alone,
}
LATER_LAUNCHERS = ("torchrun", "srun")


def _choose(kind: str, name: str, table: Mapping[str, Any], later: Sequence[str]) -> Any:
    if name in table:
        return table[name]
    if name in later:
        raise InputError(f"{kind}: {name} comes with a later release.", f"Now: {', '.join(table)}.")
    near = closest(name, [*table, *later])
    raise InputError(
        f"{kind}: unknown (got {name!r}).",
        f"Did you mean {near}?" if near else f"One of {', '.join([*table, *later])}.",
    )


def build(
    study: Study, values: TrialValues, base_env: Mapping[str, str], python_path: Path
) -> Built:
    """Return the argv and the environment of one attempt, to be started in ``study.workdir``.

    Raises:
        InputError: The command, the launcher or the environment cannot be used.
    """
    launch = _choose("launcher", study.launcher, LAUNCHERS, LATER_LAUNCHERS)
    contain = _choose(
        "environment.runtime", study.environment.runtime, RUNTIMES, LATER_RUNTIMES
    )
    names = [*study.space.names(), *study.fixed]
    argv = launch(study, fill(study.command, values, names))
    if not argv:
        raise InputError("command: nothing is left of it once the values are in.")
    return contain(study, argv, environment(study, values, base_env, python_path))


def explain_missing(argv: Sequence[str], env: Mapping[str, str], workdir: Path) -> str | None:
    """Say which program or script of a built command is not there, or None where all are.

    Only what can be known without starting it: the program, and the script that Python would run.
    """
    program = argv[0]
    if any(EDIT in element for element in argv):
        return f"command: {EDIT} still stands in it."
    if os.sep in program:
        if not os.access(workdir / program, os.X_OK):
            why = "cannot be executed" if (workdir / program).exists() else "does not exist"
            return f"command: {program} {why} (looked in {workdir})."
    elif not shutil.which(program, path=env.get("PATH")):
        return f"command: no program named {program} on PATH."
    if PYTHON.fullmatch(os.path.basename(program)):
        script = next((element for element in argv[1:] if element not in ("-u", "-O", "-B")), "")
        if script.endswith(".py") and not (workdir / script).is_file():
            return f"command: {script} does not exist in {workdir}."
    return None
