"""The command with a trial's values in it, and what of it can be checked beforehand.

No value of a parameter meets a shell: each is an argument of its own, or part of one. How values
become text:

- ``{lr}`` and ``{params}`` write Python's way, because most scripts are Python's: floats by repr
  (``1e-05``), ``True``, ``False``, ``None``, strings as they are, lists and maps as JSON.
- ``{params:flags}`` is ``{params}``, but true is ``--name`` alone and false is left out;
  ``{params: }`` gives name and value as two arguments; ``{params:json}`` is one JSON object.
- ``{overrides}`` writes Hydra's way: ``null``, ``true``, ``[a,b]``, quotes where needed;
  ``{overrides:+}`` and ``{overrides:++}`` put Hydra's signs before each name.

An argument that mentions what this trial does not have (``{resume}`` at the first attempt, a
parameter whose condition does not hold) is left out; where it is nothing but that placeholder, the
option before it (``--resume {resume}``) goes with it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core import secret_arguments
from sweep.core.errors import InputError, closest
from sweep.core.hydra_text import write_override
from sweep.core.placeholders import (
    CHECKPOINT,
    CONFIG_JSON,
    DATA,
    EDIT,
    PARAMS_JSON,
    RESERVED,
    SPREAD,
    Placeholder,
    names,
    parse,
)
from sweep.core.programs import INTERPRETER, OTHER, SHELL, Program, read_program
from sweep.core.programs import PYTHON as IS_PYTHON
from sweep.core.study import Study
from sweep.core.yaml_text import write_mapping, write_tree
from sweep.training.command.environment import TrialValues

PYTHON = INTERPRETER
JSON = "json"
EMPTY: Mapping[str, str] = {}


def write_config(params: Mapping[str, Any]) -> str:
    """Return the text of a trial's configuration: flat ``name: value`` lines, the same values for
    readers of YAML 1.1 and 1.2."""
    return write_mapping(params)


def config_path(study: Study, path: Path) -> Path:
    """Return the path of a trial's configuration file, in the format that the study wants."""
    return json_config(path) if study.config.format == JSON else path


def config_files(study: Study, config: Path, params: Mapping[str, Any]) -> dict[Path, str]:
    """Return a trial's configuration files by path: the one of ``{config}``, and JSON where a
    command names it.

    Args:
        config: As ``config_path`` returns it.
        params: What it holds.

    Raises:
        InputError: ``config.nested``, and a value has a name within another value.
    """
    is_nested = study.config.nested
    params = nest(params) if is_nested else params
    files = {}
    if config != json_config(config):
        files[config] = write_tree(params) if is_nested else write_config(params)
    named = any(CONFIG_JSON in names(word) for words in _commands(study) for word in words)
    if named or not files:
        text = json.dumps(params, indent=1, ensure_ascii=False)
        files[json_config(config)] = text + "\n"
    return files


def nest(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with dots in their names as mappings within mappings.

    A value that is a mapping itself takes others in: ``optimizer`` and ``optimizer.lr``.

    Raises:
        InputError: A value has a name within another one that is no mapping.
    """
    found: dict[str, Any] = {name.split(".")[0]: {} for name in params}  # in their order
    for name, value in sorted(params.items(), key=lambda item: item[0].count(".")):
        *above, last = name.split(".")
        place = found
        for part in above:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise InputError(
                    f"config.nested: {name} lies within a value that is no mapping.",
                    "Rename one of the two.",
                )
        place[last] = _copied(value)
    return found


def _copied(value: Any) -> Any:
    """Return a mapping of its own, to put others into; else the value."""
    if not isinstance(value, Mapping):
        return value
    return {name: _copied(inner) for name, inner in value.items()}


def _commands(study: Study) -> list[Sequence[str]]:
    return [study.command, *study.commands.values()]


def json_config(config: Path) -> Path:
    """Return the path of the JSON form of a trial's configuration file."""
    return config.with_suffix(".json")


def write_text(value: Any) -> str:
    """Return a value as a Python script expects it on its command line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def fill(
    command: Sequence[str],
    values: TrialValues,
    optional: Sequence[str] = (),
    environ: Mapping[str, str] = EMPTY,
) -> list[str]:
    """Return the command with the trial's values in place of its placeholders.

    Args:
        optional: Names of parameters that a trial may lack (the space's and the fixed values);
            any other unknown placeholder is an error.
        environ: The task's, with the secrets that the command refers to.

    Raises:
        InputError: A placeholder that names nothing, or a value that cannot be written.
    """
    known: dict[str, str | None] = {
        CHECKPOINT: str(values.resume) if values.resume else None,
        **{name: write_text(value) for name, value in values.params.items()},
        "config": str(values.config),
        CONFIG_JSON: str(json_config(values.config)),
        PARAMS_JSON: json.dumps(dict(values.params), ensure_ascii=False),
        "trial_dir": str(values.trial_dir),
        "seed": str(values.seed),
        "checkpoint_dir": str(values.checkpoint_dir),
        "resume": str(values.resume) if values.resume else None,
        **{f"{DATA}{name}": str(path) for name, path in values.data.items()},
        **secret_arguments.values_of(environ),
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
            if name.startswith(secret_arguments.REFERENCE) and name not in known:
                raise InputError(
                    f"command: what {{{name}}} stands for is not in the study's environment.json.",
                    "Launch the study again: sweep launch STUDY.yaml.",
                )
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
    base, _, form = kind.partition(":")
    if base == "overrides":
        try:
            return [form + write_override(name, value) for name, value in params.items()]
        except (TypeError, ValueError) as error:
            raise InputError(f"command: {{{kind}}}: {error}.", "Use {config} instead.") from None
    written: list[str] = []
    for name, value in params.items():
        if form == "flags" and isinstance(value, bool):
            written += [f"--{name}"] if value else []
        elif form == " ":
            written += [f"--{name}", write_text(value)]
        else:
            written.append(f"--{name}={write_text(value)}")
    return written


def explain_missing(argv: Sequence[str], env: Mapping[str, str], workdir: Path) -> str | None:
    """Say which program or script of a built command is not there, or None where all are.

    Only what can be known without starting it: the program, and the script that Python would run.
    """
    if any(EDIT in element for element in argv):
        return f"command: {EDIT} still stands in it."
    found = read_program(argv)
    programs = [argv[0]] if not found.before else [argv[0], *_on_path(argv, found)]
    for program in programs:
        if os.sep in program:
            if not os.access(workdir / program, os.X_OK):
                why = _why_not_run(workdir / program)
                return f"command: {program} {why} (looked in {workdir})."
        elif not shutil.which(program, path=env.get("PATH")):
            return f"command: no program named {program} on PATH."
    script = find_script(argv)
    if script and not os.path.isfile(workdir / script):
        return f"command: {script} does not exist in {workdir}."
    return None


def _on_path(argv: Sequence[str], found: Program) -> list[str]:
    """Return the program that is wrapped, where it must be on PATH as ours is."""
    if found.is_elsewhere or found.has_moved or not found.words or found.prefix:
        return []
    sets_path = any(word.startswith("PATH=") for word in found.before)
    is_shell_word = os.path.basename(argv[0]) in ("exec", "command", "time")
    return [] if sets_path or is_shell_word or found.kind == OTHER else [found.words[0]]


def _why_not_run(program: Path) -> str:
    try:
        program.stat()
    except PermissionError:
        return "may not be reached by you"
    except OSError:
        return "does not exist"
    return "cannot be executed"


def find_script(argv: Sequence[str]) -> str | None:
    """Return the script that Python or a shell would run, or None where the command is another."""
    found = read_program(argv)
    if found.script is None or found.has_moved or found.kind not in (IS_PYTHON, SHELL):
        return None
    return found.script if found.script.endswith((".py", ".sh")) else None
