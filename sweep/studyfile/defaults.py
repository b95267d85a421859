"""The site's and the user's defaults beneath a study file: what they may hold, and how they merge.

A defaults file is checked as strictly as a study file. What stands in the study file wins over the
user's, and that over the site's: mappings merge key by key, anything else is replaced as a whole.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core import settings
from sweep.core.errors import InputError, Problem, StudyFileError
from sweep.studyfile.keys import STUDY
from sweep.studyfile.rules import Entry, Reader, join
from sweep.studyfile.sections import Section
from sweep.studyfile.tree import Node, YamlError, decode, parse

# What a study is about (its command, space, objective, search) is its own; where and how it runs
# may be a site's or a user's habit.
MAY_BE_DEFAULTS = (
    "max_parallel",
    "trial_time",
    "stall_time",
    "grace",
    "tasks",
    "trials_per_task",
    "keep",
    "resume",
    "retry",
    "resources",
    "executor",
    "launcher",
    "ddp",
    "slurm",
    "environment",
    "storage",
    "staging",
    "notify",
    "share",
)
DEFAULTS = Section(
    "a file of defaults",
    None,
    {name: STUDY.keys[name] for name in MAY_BE_DEFAULTS},
    STUDY.elsewhere,
)
NO_MAPPING = "must be a mapping of keys to values"
# Of each of these a file decides as a whole: with one, a lower file's others lose their meaning.
_ONE_OF = {"resources": ("gpus", "shard", "mps"), "storage": ("url", "embedded")}
# What an environment keeps of a lower file's when it names another runtime.
_OF_ANY_RUNTIME = ("env", "gpu")


def read_defaults(environ: Mapping[str, str] = os.environ) -> list[Node]:
    """Return the defaults that are in force, the weakest first.

    Raises:
        StudyFileError: With all that is wrong in them.
        InputError: Others than you and root may change a file, or it cannot be read.
    """
    found: list[Node] = []
    problems: list[Problem] = []
    for home in settings.homes(environ):
        node, wrong = _read(home)
        problems += wrong
        if node is not None:
            found.append(node)
    if problems:
        raise StudyFileError(problems)
    return found


def _read(home: settings.Home) -> tuple[Node | None, list[Problem]]:
    file = str(home.file)
    try:
        status = home.file.stat()
        data = home.file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None, []
    except OSError as error:
        raise InputError(
            f"The {home.whose}'s defaults {file} cannot be read: {error.strerror}.",
            f"Mend that, or do without: {_variable(home)}= (empty).",
        ) from None
    # Its shell lines run as you: what others can write, others run.
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        raise InputError(
            f"The {home.whose}'s defaults {file} can be changed by other users.",
            f"chmod o-w it (and own it), or do without: {_variable(home)}= (empty).",
        )
    try:
        root, problems = parse(decode(data, file), file)
    except YamlError as error:
        return None, [error.problem]
    if root is None:
        return None, problems
    at = Entry(root, "", Reader(problems=problems))
    if root.kind != "map":
        at.report(NO_MAPPING, "For example slurm: {account: proj1}.")
        return None, problems
    for name, entry in at.entries().items():
        if name in STUDY.keys and name not in MAY_BE_DEFAULTS:
            entry.report("is a study's own and no default", "Write it into the study file.", "")
            del root.entries[name]
    DEFAULTS.read_values(at)
    return root, problems


def _variable(home: settings.Home) -> str:
    return settings.SITE_VARIABLE if home.whose == settings.SITE else settings.USER_VARIABLE


def lay_beneath(layers: Sequence[Node], root: Node) -> Node:
    """Return a study file's tree with defaults beneath it; each value keeps its file and line."""
    merged: Node | None = None
    for layer in (*layers, root):
        merged = layer if merged is None else _merge(merged, layer, "")
    assert merged is not None
    return dataclasses.replace(merged, file=root.file, line=root.line)


def _merge(lower: Node, upper: Node, path: str) -> Node:
    if lower.kind != "map" or upper.kind != "map":
        return upper
    below = dict(lower.entries)
    alternatives = _ONE_OF.get(path, ())
    if any(name in upper.entries for name in alternatives):
        below = {name: node for name, node in below.items() if name not in alternatives}
    if path == "environment" and _word(upper, "runtime") not in (None, _word(lower, "runtime")):
        below = {name: node for name, node in below.items() if name in _OF_ANY_RUNTIME}
    entries = {
        name: _merge(below[name], node, join(path, name)) if name in below else node
        for name, node in upper.entries.items()
    }
    kept = {name: node for name, node in below.items() if name not in entries}
    return dataclasses.replace(upper, entries={**kept, **entries})


def _word(node: Node, key: str) -> Any:
    return node.entries[key].value if key in node.entries else None
