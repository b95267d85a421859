"""Load a study file: the order of the work. Nothing is made on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweep.core.errors import InputError, Problem, StudyFileError
from sweep.core.study import Study
from sweep.studyfile import site_checks as site_checks  # its rules
from sweep.studyfile.bounds import take_bounds
from sweep.studyfile.crosscheck import check_together
from sweep.studyfile.crosschecks import fill_in_trials
from sweep.studyfile.defaults import NO_MAPPING, lay_beneath, read_defaults
from sweep.studyfile.keys import STUDY, TRIAL
from sweep.studyfile.on_cpu import put_on_cpu
from sweep.studyfile.overrides import SET, apply_override
from sweep.studyfile.points_file import read_points_file
from sweep.studyfile.rules import INVALID, Entry, Reader
from sweep.studyfile.tree import Node, YamlError, decode, parse


def load(
    path: Path,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    *,
    cpu: bool = False,
) -> Study:
    """Read and check a study file, with the site's and the user's defaults beneath it.

    Args:
        overrides: ``key.path=value`` each, the value in YAML; they win over the file.
        environ: Names the files of defaults; see ``sweep.core.settings``.
        cpu: Whether it is to run without GPUs, under a name of its own; see ``on_cpu``.

    Raises:
        StudyFileError: With all problems, in the order of the lines.
        InputError: The file cannot be read, or an override is not ``key=value``.
    """
    root, problems = read_tree(path, overrides, environ)
    if cpu:
        put_on_cpu(root)
    return _check(root, problems, str(path))


def read_tree(
    path: Path, overrides: Sequence[str], environ: Mapping[str, str]
) -> tuple[Node, list[Problem]]:
    """Return the tree that a study is made from, and the problems so far. Raises: as ``load``."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a file.", "Give the study file itself.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"There is no study file {path}.", "Check the path, or write one with `sweep init`."
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        text = decode(data, str(path))
    except YamlError as error:
        raise StudyFileError([error.problem]) from None
    return _parse(text, str(path), overrides, read_defaults(environ))


def loads(
    text: str, file: str, overrides: Sequence[str] = (), layers: Sequence[Node] = ()
) -> Study:
    """Check a study file's text. Args and Raises as ``load``; ``file`` is named in problems.

    Args:
        layers: Defaults beneath it, the weakest first.
    """
    root, problems = _parse(text, file, overrides, layers)
    return _check(root, problems, file)


def _parse(
    text: str, file: str, overrides: Sequence[str], layers: Sequence[Node]
) -> tuple[Node, list[Problem]]:
    try:
        root, problems = parse(text, file)
    except YamlError as error:
        raise StudyFileError([error.problem]) from None
    if root is None:
        root = Node("map", file, 1)
        if not overrides:
            problem = Problem(file, 1, "", "is empty", "", "Write one with `sweep init`.")
            raise StudyFileError([problem])
    if root.kind != "map":
        reader = Reader()
        Entry(root, "", reader).report(NO_MAPPING, "For example name: digits.")
        raise StudyFileError(reader.problems)
    root = lay_beneath(layers, root)
    for override in overrides:
        problems += apply_override(root, override)
    return root, problems


def _check(root: Node, problems: list[Problem], file: str) -> Study:
    # Where duplicate keys or tags were found the rest is checked all the same.
    fixed = root.entries.get("fixed")
    reader = Reader(fixed.entries if fixed else ())
    at = Entry(root, "", reader)
    bounds = take_bounds(at)
    values = STUDY.read_values(at)
    if values["where"] is not INVALID:
        values["where"] = tuple(dict.fromkeys((*bounds, *values["where"])))
    read_points_file(values, at, Path(file).absolute().parent)
    fill_in_trials(values, at)
    check_together(values, at)
    # What the tree has reported already (a NUL in a name) breaks the key's own rule as well.
    seen = {(problem.file, problem.line, problem.path) for problem in problems}
    problems += [p for p in reader.problems if (p.file, p.line, p.path) not in seen]
    if problems:
        raise StudyFileError(_sort(problems, file))
    if isinstance(values["data"], Mapping):
        values["datasets"] = values["data"]
        paths = (one.path for one in values["data"].values())
        values["data"] = tuple(dict.fromkeys(paths))
    given = values.pop("workdir")
    values["own_workdir"] = given == TRIAL
    workdir = str(Path("." if given == TRIAL else os.path.expanduser(given)).absolute())
    values["ddp"] = replace(values["ddp"], written=_is_written("ddp", root, file))
    return Study(**values, workdir=workdir, source=str(Path(file).absolute()))


def _is_written(key: str, root: Node, file: str) -> bool:
    """Tell whether a section stands in the study file (or was set), not only in defaults."""
    node = root.entries.get(key)
    if node is None:
        return False
    places = (node.file, *(entry.file for entry in node.entries.values()))
    return any(place == file or place.startswith(SET) for place in places)


def _sort(problems: Iterable[Problem], file: str) -> list[Problem]:
    """Return each problem once, those of the file by line, then those of overrides."""
    once = dict.fromkeys(problems)
    return sorted(once, key=lambda problem: (problem.file != file, problem.line))
