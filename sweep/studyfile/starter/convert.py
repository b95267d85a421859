"""``sweep init --from FILE``: another tool's search as a study file, and what that cannot hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError, Problem, StudyFileError
from sweep.core.masking import names_secret
from sweep.core.placeholders import EDIT
from sweep.core.secret_arguments import blank
from sweep.studyfile.reading import loads
from sweep.studyfile.starter.draft import Draft, make_name, write_draft
from sweep.studyfile.starter.foreign_python import UNREAD, find_dicts, read_source
from sweep.studyfile.starter.foreign_yaml import Read, read_yaml
from sweep.studyfile.starter.hydra import add_sweeper, convert_hydra, find_sweeper
from sweep.studyfile.starter.nni import is_space, read_script
from sweep.studyfile.starter.omniopt import convert_omniopt, is_omniopt
from sweep.studyfile.starter.optuna_script import convert_optuna, has_suggestions
from sweep.studyfile.starter.other_yaml import convert_other, find_other
from sweep.studyfile.starter.recognised import PAGE, recognise_data, recognise_source
from sweep.studyfile.starter.sbatch import convert_sbatch, is_shell
from sweep.studyfile.starter.sbatch_options import is_sbatch
from sweep.studyfile.starter.wandb_sweep import convert_wandb, find_wandb, is_wandb
from sweep.studyfile.tree import YamlError, decode

SCRIPTS = (".py", ".ipynb")
# Whose files say by themselves what is varied.
VARIES = ("W&B", "NNI", "Determined", "seml", "bash", "Optuna", "OmniOpt")
_SHOWN = 5


@dataclass(frozen=True)
class Converted:
    """A study file made from another.

    Attributes:
        text: The study file; what is in ``lost`` stands on top of it as comments, too.
        lost: What was not carried over, or only nearly, and what to do: one sentence each.
        source: The tool: "W&B", "Hydra", "Optuna", "Slurm", "bash", "NNI", "Determined", "seml" or
            "OmniOpt".
    """

    text: str
    lost: list[str]
    source: str


def convert(path: Path) -> Converted:
    """Convert a W&B sweep (a file, or a dict in a script) or a Hydra configuration with a sweep.

    Raises:
        InputError: The file cannot be read, or is neither of the two.
    """
    text = _text(path)
    lost: list[str] = []
    if path.suffix in SCRIPTS:
        source, draft = _convert_script(text, path, lost)
    elif is_omniopt(text):
        source, draft = "OmniOpt", convert_omniopt(text, path, lost)
    elif is_sbatch(text):
        source, draft = "Slurm", convert_sbatch(text, path, lost)
    elif is_shell(text, path):
        source, draft = "bash", convert_sbatch(text, path, lost)
    else:
        source, draft = _convert_data(_read(text, path), path, text, lost)
    _leave_secrets(draft, lost)
    lost = [f"{sentence}." for sentence in dict.fromkeys(lost)]
    _settle(draft, path, lost)
    if source in VARIES and not draft.space and not (source == "W&B" and draft.fixed):
        why = " ".join(lost[:_SHOWN])
        raise InputError(
            f"{path}: this file of {source} varies nothing that is known from it.",
            "Name the parameters under space in a study file (sweep init SCRIPT writes one). "
            + why,
        )
    draft.remarks += lost
    return Converted(write_draft(draft), lost, source)


def _convert_data(read: Read, path: Path, text: str, lost: list[str]) -> tuple[str, Draft]:
    found = find_wandb(read.data)
    if found:
        key, data = found
        if key:
            lost.append(f"{key}: the sweep lies under this key, where W&B itself does not look")
        draft = convert_wandb(data, path.name, lost)
        for place, line in read.twice.items():
            lost.append(f"{place}: is there twice; the last was taken, in line {line}, as by W&B")
        places = [place for place in read.numbers if place.startswith(key)]
        if places:
            shown = ", ".join(f"{read.numbers[p]} ({p})" for p in places[:_SHOWN])
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            lost.append(
                f"numbers such as {shown}{more}: texts to W&B, which reads YAML 1.1 (there it is "
                "1.0e-5); here they are the numbers that they look like"
            )
        return "W&B", draft
    if read.twice:  # what OmegaConf refuses too
        place, line = next(iter(read.twice.items()))
        raise InputError(f"{path} is not YAML: {place} is there twice, again in line {line}.")
    data = add_sweeper(read.data, path)
    if find_sweeper(data) is not None:
        return "Hydra", convert_hydra(data, path, text, lost)
    other = find_other(read.data)
    if other:
        return other, convert_other(other, read.data, path, lost)
    tool = recognise_data(read.data)
    if tool:
        raise _not_converted(path, tool)
    raise InputError(
        f"{path} is neither a W&B sweep nor a Hydra configuration with a sweeper.",
        "A W&B sweep has `parameters`; a Hydra configuration `hydra: {sweeper: {params: …}}`. "
        "Also read: NNI, Determined, seml, Optuna scripts, job arrays of Slurm and bash loops.",
    )


def _not_converted(path: Path, tool: str) -> InputError:
    return InputError(
        f"{path} is a search of {tool}, which is not converted.",
        f"How its words are said here: {PAGE}, under {tool}.",
    )


def _convert_script(text: str, path: Path, lost: list[str]) -> tuple[str, Draft]:
    try:
        tree = read_source(text, is_notebook=path.suffix == ".ipynb")
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise InputError(f"{path} is not a Python script: {error}.") from None
    try:
        found = [(name, _plain(data)) for name, data in find_dicts(tree)]
    except RecursionError:
        raise InputError(f"{path}: its dicts are nested too deep.") from None
    # A script may keep several of them in one dict.
    apart = [
        item
        for name, data in found
        for item in (
            [(name, data)]
            if is_wandb(data)
            else [(f"{name}[{key!r}]", inner) for key, inner in data.items()]
        )
    ]
    sweeps = [(name, data) for name, data in apart if is_wandb(data)]
    if not sweeps and has_suggestions(tree):
        return "Optuna", convert_optuna(tree, path, lost)
    spaces = [data for _, data in found if is_space(data)]
    if not sweeps and spaces:
        return "NNI", convert_other("NNI", read_script(tree, spaces[0]), path, lost)
    tool = recognise_source(text)
    if not sweeps and tool:
        raise _not_converted(path, tool)
    if not sweeps:
        raise InputError(
            f"{path} has no dict that is a W&B sweep, as far as it can be read without running it.",
            "Such a dict has `method` and `parameters`. For a study of a script's flags: "
            f"sweep init {path}",
        )
    names = list(dict.fromkeys(name for name, _ in sweeps))
    if len(sweeps) > 1:
        lost.append(
            f"{names[0]}: the first of {len(sweeps)} sweeps in the script was taken "
            f"({', '.join(names[:_SHOWN])})"
        )
    name, data = sweeps[0]
    draft = convert_wandb(data, f"{name} in {path.name}", lost)
    if "program" not in data:
        lost.append(
            f"{path.name}: W&B's agent calls a function of the script; make the script train once "
            "when it is called, with the values as its arguments, and name it in the command"
        )
    if any(UNREAD in str(data.get(key)) for key in ("name", "project")):
        draft.name = make_name(path.stem)
    for key, value in [*draft.fixed.items()]:
        if UNREAD in str(value):
            del draft.fixed[key]
            lost.append(f"parameters.{key}: {value}")
    if UNREAD in str(draft.objectives[0]["metric"]):
        lost.append(f"metric.name: {draft.objectives[0]['metric']}")
        draft.objectives[0]["metric"] = "val_loss"
    return "W&B", draft


def _plain(value: Any) -> Any:
    """Return Python data as YAML would hold it: text keys, lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _leave_secrets(draft: Draft, lost: list[str]) -> None:
    """Take out of a draft what is secret by its name: a study file is shown and shared.

    Raises:
        InputError: A parameter is, and its values are texts: the trials would differ by a secret.
    """
    points = draft.more.get("points")
    for name in [name for name in draft.space if names_secret(name)]:
        values = list(draft.space[name].get("choices", []))
        values += [row.get(name) for row in points] if isinstance(points, list) else []
        if any(isinstance(value, str) for value in values):
            raise InputError(
                f"{name} is varied, and is a secret by its name: its values would stand in the "
                "study file, in the study and on each command line.",
                "Have training read the secret from a file or a variable of the shell that "
                f"launches, and vary what chooses it; where {name} is no secret, give the "
                "parameter another name.",
            )
    draft.command, found = blank(draft.command, EDIT)
    if found:
        lost.append(
            f"command: the value of {', '.join(found)} is a secret by its name, and was not copied "
            f"({EDIT}); better have training read it from a variable of the shell that launches"
        )
    for name in [n for n, value in draft.fixed.items() if value and names_secret(n)]:
        if isinstance(draft.fixed[name], str):
            del draft.fixed[name]
            lost.append(
                f"{name}: is a secret by its name, and was not copied; have training read it from "
                "a variable of the shell that launches"
            )
    env = draft.more.get("environment", {}).get("env", {})
    for name in [n for n, value in env.items() if value and names_secret(n)]:
        env[name] = None
        lost.append(
            f"{name}: is a secret by its name, and was not copied; set it in the shell that "
            "launches"
        )


def _settle(draft: Draft, path: Path, lost: list[str]) -> None:
    """Take out of a draft what no study file may hold, and name it, until it loads.

    Raises:
        InputError: It cannot be made to load.
    """
    problems: list[Problem] = []
    for _ in range(len(draft.space) + len(draft.fixed) + 3):
        try:
            loads(write_draft(draft), path.name)
            return
        except StudyFileError as error:
            problems = error.problems
        taken = False
        for problem in problems:
            for key, entries in (("space", draft.space), ("fixed", draft.fixed)):
                inside = problem.path.removeprefix(f"{key}.")
                name = next(
                    (n for n in entries if re.match(re.escape(n) + r"(\.|\[|$)", inside)), None
                )
                if problem.path != inside and name is not None:
                    del entries[name]
                    draft.command = [one.replace(f"{{{name}}}", EDIT) for one in draft.command]
                    got = f" (got {problem.got})" if problem.got else ""
                    lost.append(f"{name}: {problem.rule}{got}; it was left out.")
                    taken = True
        taken = _leave_wishes(draft, problems, lost) or taken
        if not taken:
            break
    what = "; ".join(f"{one.path}: {one.rule}" for one in problems[:_SHOWN])
    raise InputError(
        f"{path} cannot become a study file: {what}.", "Mend that in the file, and convert again."
    )


def _leave_wishes(draft: Draft, problems: list[Problem], lost: list[str]) -> bool:
    """Take out what resources and slurm cannot hold (a variable, a template's mark), and name it;
    return whether something was."""
    taken = False
    for problem in reversed(problems):  # of a list the last first
        found = re.fullmatch(r"(resources|slurm)\.(\w+)(?:\[(\d+)\])?", problem.path)
        section = draft.more.get(found[1]) if found else None
        if found is None or not isinstance(section, dict) or found[2] not in section:
            continue
        value = section[found[2]]
        if found[3] and isinstance(value, list) and int(found[3]) < len(value):
            shown = str(value.pop(int(found[3])))
        else:
            shown = str(section.pop(found[2]))
        taken = True
        lost.append(f"{found[1]}.{found[2]}: {problem.rule} (got {shown[:60]!r}); it was left out.")
        if not section:
            del draft.more[found[1]]
    return taken


def _text(path: Path) -> str:
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except YamlError as error:
        raise InputError(f"{path} is not YAML: {error}") from None


def _read(text: str, path: Path) -> Read:
    try:
        return read_yaml(text, path.name)
    except YamlError as error:
        raise InputError(f"{path} is not YAML: {error}") from None
