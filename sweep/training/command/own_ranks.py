"""Whether a command starts its ranks itself, also from within a shell script; and what launch says
about a command that runs as it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.core.programs import LAUNCHER, OTHER, SHELL, SHELLS, Program, read_program
from sweep.core.programs import PYTHON as IS_PYTHON
from sweep.core.shell_text import list_commands
from sweep.core.study import Study
from sweep.training.command.launchers import (
    AUTO,
    PYTHON,
    SRUN,
    TORCHRUN,
    choose,
    expects_ranks,
    twice,
)

_MOST_SCRIPT = 1 << 18  # characters; a script that starts a training is a page
# By which scripts of Python start ranks.
_SPAWNS = re.compile(
    r"\b(?:mp|multiprocessing|xmp)\.(?:spawn|start_processes)\(|\b(?:notebook|debug)_launcher\("
)
_ONE_FOR_ALL = re.compile(r"\bDataParallel\(")  # and neither Distributed… nor FullySharded…
_DEEPEST = 4  # scripts that call scripts
_PYTHONS = ("$PYTHON", "${PYTHON}", "$python", "${python}", "$PY")  # as scripts name it


@dataclass(frozen=True)
class OwnLauncher:
    """A launcher that a command calls by itself.

    Attributes:
        name: torchrun, mpirun …
        place: The script and line that calls it; empty where the command's own words do.
        is_certain: Whether it is called in any case, and not only under a condition.
    """

    name: str
    place: str = ""
    is_certain: bool = True

    @property
    def text(self) -> str:
        return f"{self.name}, {self.place}" if self.place else self.name


def find_launcher(command: Sequence[str], workdir: Path) -> OwnLauncher | None:
    """Return the launcher that a command calls, also through shell scripts; None where none is.

    Args:
        workdir: Where the command starts.
    """
    found = list(_launchers(read_program(command), workdir, _DEEPEST))
    return next((one for one in found if one.is_certain), found[0] if found else None)


def _launchers(program: Program, workdir: Path, deep: int) -> Iterator[OwnLauncher]:
    if program.kind == LAUNCHER:
        yield OwnLauncher(program.name)
        return
    text, place = _read_script(program, workdir)
    if text is None or not deep:
        return
    for command in list_commands(text):
        words = list(command.words)
        if words[0] in _PYTHONS:
            words[0] = "python"
        if words[0] in (".", "source"):
            words[0] = "sh"
        for one in _launchers(read_program(words), workdir, deep - 1):
            yield OwnLauncher(
                one.name,
                one.place or f"{place}line {command.line}",
                one.is_certain and command.is_certain,
            )


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(_MOST_SCRIPT)
    except OSError:
        return None


def _read_script(program: Program, workdir: Path) -> tuple[str | None, str]:
    """Return the text of a shell's script, and how its lines are named; None where it has none."""
    if program.code is not None:
        return program.code, ""
    name = program.script if program.kind == SHELL else None
    if program.kind == OTHER and program.words and os.sep in program.words[0]:
        name = program.words[0]
    if name is None or program.has_moved:
        return None, ""
    text = _read(workdir / name)
    if text is None:
        return None, ""
    if program.kind == OTHER and not _is_shell(text):
        return None, ""
    return text, f"{name} "


def _say_twice(study: Study, program: Program) -> list[str]:
    """Say where a script of Python starts processes itself, or uses all GPUs in one, as each of its
    ranks would."""
    if program.script is None or program.has_moved:
        return []
    text = _read(Path(study.workdir) / program.script) or ""
    for pattern, does in (
        (_SPAWNS, "starts processes itself"),
        (_ONE_FOR_ALL, "uses all GPUs in one process"),
    ):
        if found := pattern.search(text):
            line = text.count("\n", 0, found.start()) + 1
            return [
                f"{program.script} {does} ({found[0].rstrip('(')}, line {line}), and "
                f"{choose(study)} starts {study.world} of it. Unless it does so only where it is "
                "alone, write launcher: python."
            ]
    return []


def _is_shell(text: str) -> bool:
    """Tell whether a file's first line gives it to a shell."""
    head = text.partition("\n")[0]
    words = head[2:].split() if head.startswith("#!") else []
    return any(os.path.basename(word) in SHELLS for word in words[:2])


def check(study: Study) -> None:
    """Refuse a launcher around a script that calls one itself.

    Raises:
        InputError: Both would start ranks.
    """
    found = find_launcher(study.command, Path(study.workdir))
    if study.launcher in (TORCHRUN, SRUN) and found is not None and found.is_certain:
        raise twice(study.launcher, found.text)


def notes(study: Study) -> list[str]:
    """Return, in sentences, what a user should know of how a study's ranks are started."""
    program = read_program(study.command)
    found = find_launcher(study.command, Path(study.workdir))
    if study.launcher in (TORCHRUN, SRUN) and found is not None:
        return [
            f"{' '.join(study.command[:2])} may start processes itself ({found.text}), and "
            f"launcher: {study.launcher} starts {study.world} of it: write launcher: python if it "
            "does."
        ]
    if program.kind == IS_PYTHON and study.launcher != PYTHON and expects_ranks(study):
        return _say_twice(study, program)
    if study.launcher != AUTO or program.kind == IS_PYTHON or not expects_ranks(study):
        return []
    shown = " ".join((*program.words[:1], *([program.script] if program.script else [])))
    shown = shown if program.kind != LAUNCHER else program.name
    where = (
        f" on the first of its {study.resources.nodes} nodes" if study.resources.nodes > 1 else ""
    )
    ranks = f"its {study.world} processes" if study.world > 1 else "its process"
    if found is not None and found.is_certain:
        return [f"{shown} runs once{where}, as it is: it starts {ranks} itself ({found.text})."]
    return [
        f"{shown} is no Python program, so launcher: auto runs it once{where}, as it is, and it "
        f"must start {ranks} itself. If it is what each process runs, write launcher: torchrun (or "
        "srun)."
    ]
