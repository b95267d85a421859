"""What a job script runs, gone through task by task, held against the study that was made of it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.studyfile.starter.bash_state import UNKNOWN, NotKnown, Ran
from sweep.studyfile.starter.bash_tasks import run_tasks
from sweep.studyfile.starter.draft import Draft
from sweep.studyfile.starter.sbatch_around import read_command, run_here
from sweep.studyfile.starter.sbatch_series import are_alike
from sweep.studyfile.starter.sbatch_text import likeliest

_MOST_TASKS = 1_000
_MOST_POINTS = 5_000
_FILE = re.compile(r"\.[A-Za-z]\w{0,4}$")
_READS = re.compile(r"config|cfg|file|path|data|ckpt|checkpoint|load|resume|weights|pretrained")
# Also within a word: lr_1e-4 in the name of a run is the same as lr_0.0001.
_NUMBER = re.compile(r"(?<![\d.])(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\d.])")
_PLACEHOLDER = re.compile(r"\{([\w.+/@-]+)\}")


@dataclass
class Trainings:
    """The command of a script that trains, as it ran.

    Attributes:
        rows: Its words, each time that they are others; what is not known is ``$NAME`` or ``$(…)``.
        settings: The variables before it, where they are the same each time.
        others: The other commands that ran, one of each.
        is_known: Whether all words are.
        sources: The lines of the script that ran them.
    """

    rows: list[list[str]]
    settings: str
    others: list[str]
    is_known: bool
    sources: list[str]


def find_trainings(
    body: str, folder: Path, tasks: list[int], names: dict[str, str]
) -> Trainings | None:
    """Return what a script trains in all of its tasks; None where that is not known.

    Args:
        body: As ``sbatch_text.straighten`` returns it.
        tasks: Those of its array; none for a script that runs once.
        names: What Slurm sets for all of them.
    """
    if len(tasks) > _MOST_TASKS:
        return None
    try:
        found = run_tasks(body, folder, tasks, names, read_command)
    except (NotKnown, RecursionError):
        return None
    ran = [one for task in found for one in task]
    lines = list(dict.fromkeys(one.line for one in ran))
    if not lines:
        return None
    # A command that varies is told by a dollar, as it would stand in the script.
    texts = {place: [one for one in ran if one.line == place] for place in lines}
    shown = [_shown(texts[place][0]) + (" $" if _varies(texts[place]) else "") for place in lines]
    taken = likeliest(shown)
    own = texts[lines[taken]]
    joined = {lines[taken]}
    for place in lines:
        both = [list(one.words) for one in (*own, *texts[place])]
        if place not in joined and are_alike(both):
            own, joined = own + texts[place], {*joined, place}
    settings = list(dict.fromkeys(_settings(one.settings) for one in own))
    same = settings[0] if len(settings) == 1 else ""
    rows = [[*_environment(one, settings), *(_readable(word) for word in one.words)] for one in own]
    rows = [run_here(row, []) for row in rows]
    unique = [list(row) for row in dict.fromkeys(map(tuple, rows))]
    others = [_shown(texts[place][0]) for place in lines if place not in joined]
    is_known = not any(UNKNOWN in word for one in own for word in (one.settings, *one.words))
    all_lines = body.split("\n")
    sources = [all_lines[place].strip() for place in joined if place < len(all_lines)]
    return Trainings(unique, same, list(dict.fromkeys(others)), is_known, sources)


def _varies(ran: list[Ran]) -> bool:
    return len({(one.settings, one.words) for one in ran}) > 1


def _shown(one: Ran) -> str:
    return " ".join(_readable(word) for word in one.words)


def _settings(text: str) -> str:
    """Return the settings before a command, but for the GPUs, which each trial is given."""
    return re.sub(r"CUDA_VISIBLE_DEVICES=\S*\s*|\b(?:time|exec|nohup|env)\s+", "", text).strip()


def _environment(one: Ran, settings: list[str]) -> list[str]:
    own = _settings(one.settings)
    return ["env", *own.split()] if len(settings) > 1 and own else []


def _readable(word: str) -> str:
    """Return a word in which what is not known stands as it would in a script."""

    def put(found: re.Match[str]) -> str:
        inside = found[1]
        if re.fullmatch(r"\w+", inside):
            return f"${{{inside}}}"
        plain = re.sub(r"[^\w .,*/+-]", "", inside)
        return f"$({plain})"

    return re.sub(f"{UNKNOWN}([^{UNKNOWN}]*){UNKNOWN}", put, word)


def is_other(draft: Draft, found: Trainings) -> bool:
    """Tell whether a draft would train otherwise than the script did, as far as both are known."""
    if any(EDIT in word for word in draft.command):
        return True
    points = _points(draft)
    if points is None or not found.is_known:
        return False
    planned = {_plain([_fill(word, point) for word in draft.command]) for point in points}
    return planned != {_plain(row) for row in found.rows}


def _points(draft: Draft) -> list[Mapping[str, Any]] | None:
    rows = draft.more.get("points")
    if isinstance(rows, list):
        return rows
    values = []
    for parameter in draft.space.values():
        if "choices" in parameter:
            values.append(parameter["choices"])
        elif parameter.get("type") == "int" and {"low", "high"} <= parameter.keys():
            values.append(list(range(parameter["low"], parameter["high"] + 1)))
        else:
            return None
    if math.prod(map(len, values)) > _MOST_POINTS:
        return None
    return [dict(zip(draft.space, row, strict=True)) for row in itertools.product(*values)]


def _fill(word: str, point: Mapping[str, Any]) -> str:
    filled = _PLACEHOLDER.sub(lambda m: str(point[m[1]]) if m[1] in point else m[0], word)
    return filled.replace("{{", "{").replace("}}", "}")


def _plain(row: list[str]) -> tuple[str, ...]:
    """Return a command with its numbers written in one way; names of what is read stay."""
    words = []
    for before, word in zip(["", *row], row, strict=False):
        option = word.partition("=")[0] if "=" in word else before
        is_read = _FILE.search(word) or _READS.search(option.lower())
        words.append(word if is_read else _NUMBER.sub(lambda m: repr(float(m[0])), word))
    return tuple(words)
